"""Interleaved rounds of one process, today's relay and the rings. Usage: measure.py ROUNDS SECONDS SCENARIO..."""
import glob, json, os, re, signal, socket, subprocess, sys, time, statistics as st, http.client
sys.path.insert(0, '/tmp/w/hop')
BENCH='/tmp/w/hop/bench'
BASE=os.environ.get('BASE_LIB','/tmp/w/hop-scratch/base-local/lib'); NEW='/tmp/w/hop-scratch/lib2'
port=[19100]
def free():
    while True:
        port[0]+=1
        try: socket.create_server(('127.0.0.1',port[0])).close(); return port[0]
        except OSError: pass
def env(lib,**kw):
    e={k:v for k,v in os.environ.items() if k not in('R_LIBS','R_LIBS_USER','RUST_BACKTRACE','LD_PRELOAD')}
    e.update(ROOKERY_LIB=lib,ROOKERY_CONTENDERS='/nonexistent',ROOKERY_BENCH_OUT='/tmp/w/hop-scratch/out',**kw); return e
os.makedirs('/tmp/w/hop-scratch/out/static',exist_ok=True)
STATIC='/tmp/w/hop-scratch/out/static'
def start(kind,workload):
    p=free(); lib={'one':BASE,'one-new':NEW,'relay':BASE,'relay-new':NEW,'rings':NEW}[kind]
    if kind.startswith('one'):
        cmd=['Rscript','--vanilla',f'{BENCH}/contenders/rookery.R',str(p),workload,STATIC]; e=env(lib)
    else:
        cmd=[f'{lib}/rookery/exec/rookery','serve',f'{BENCH}/contenders/workers.R','--workers','2','--port',str(p),'--no-log']
        e=env(lib,R_LIBS=lib,BENCH_PORT=str(p),BENCH_WORKLOAD=workload,BENCH_STATIC=STATIC,BENCH_CONTENDERS=f'{BENCH}/contenders')
        if kind=='rings': e['ROOKERY_SPIKE_RINGS']='1'
    log=open(f'/tmp/w/hop-scratch/out/{kind}-{workload}.log','wb')
    proc=subprocess.Popen(cmd,env=e,stdout=log,stderr=subprocess.STDOUT,stdin=subprocess.DEVNULL)
    t=time.time()+30
    while True:
        try:
            c=http.client.HTTPConnection('127.0.0.1',p,timeout=5); c.request('GET','/'); r=c.getresponse(); b=r.read(); c.close()
            if r.status==200 and (workload=='ws' or b==b'Hello, World!'): break
        except OSError: pass
        if proc.poll() is not None or time.time()>t: raise SystemExit(f'{kind} did not start: '+open(log.name).read())
        time.sleep(.05)
    time.sleep(1 if kind not in('one','one-new') else .2)
    return proc,p
def tree(pid):
    out=[pid]
    for f in glob.glob(f'/proc/{pid}/task/*/children'):
        for c in open(f).read().split(): out+=tree(int(c))
    return out
def cpu(pid):
    total={}
    for q in tree(pid):
        for f in glob.glob(f'/proc/{q}/task/*/schedstat'):
            tid=int(f.split('/')[4])
            try:
                comm=open(f'/proc/{q}/task/{tid}/comm').read().strip()
                total[(q,tid,comm)]=int(open(f).read().split()[0])/1e9
            except OSError: pass
    return total
def sig(pid,s):
    for q in tree(pid): os.kill(q,s)
def run(kind,proc,p,scenario,secs):
    name,conns=scenario.rsplit('-',1)
    before=cpu(proc.pid)
    if not name.startswith('echo'):
        e=env(NEW,BENCH_HEADERS='0',BENCH_BODY_BYTES='0',BENCH_METHOD='',BENCH_CHUNKED='0',BENCH_SEND='')
        out=subprocess.run(['wrk','-t1',f'-c{conns}',f'-d{secs}s','--timeout','10s','-s',f'{BENCH}/load/wrk.lua',f'http://127.0.0.1:{p}/'],env=e,capture_output=True,text=True).stdout
        r=json.loads(out.partition('BENCH ')[2]); p50=r['p50']; n=r['requests']; rate=n/r['seconds']
        bad=sum(r[k] for k in('connect_errors','read_errors','write_errors','status_errors','timeouts'))
        if bad: raise SystemExit(f'{kind} {scenario}: {bad} failed')
        size=r['bytes']/n
        if not 100<size<220: raise SystemExit(f'{kind}: {size} bytes per response')
    else:
        out=subprocess.run(['/tmp/w/hop-scratch/wsload','echo',str(p),'/ws',conns,str(secs),'64'],capture_output=True,text=True).stdout
        rate,n=parse_ws(out,secs); p50=json.loads(out)['p50']
    after=cpu(proc.pid)
    delta={k:after[k]-before.get(k,0) for k in after}
    by={'p50us':p50}
    for (q,tid,comm),v in delta.items():
        role=comm if q!=proc.pid or kind.startswith('one') else 'front:'+comm
        by[role]=by.get(role,0)+v/n*1e6
    return rate,sum(delta.values())/n*1e6,by
def parse_ws(out,secs):
    d=json.loads(out)
    if d['errors']: raise SystemExit(out)
    return d['messages']/d['seconds'],d['messages']
def main():
    rounds,secs=int(sys.argv[1]),int(sys.argv[2]); kinds=os.environ.get('KINDS','one,relay,rings').split(',')
    for scenario in sys.argv[3:]:
        wl='ws' if scenario.startswith('echo') else scenario.rsplit('-',1)[0]
        servers={k:start(k,wl) for k in kinds}
        for k,(pr,_) in servers.items(): sig(pr.pid,signal.SIGSTOP)
        res={k:[] for k in kinds}; roles={k:[] for k in kinds}
        try:
            for r in range(rounds+1):
                for k in kinds if r%2 else kinds[::-1]:
                    pr,p=servers[k]; sig(pr.pid,signal.SIGCONT); time.sleep(.3)
                    x=run(k,pr,p,scenario,secs if r else 1)
                    sig(pr.pid,signal.SIGSTOP)
                    if r: res[k].append(x[:2]); roles[k].append(x[2])
        finally:
            for pr,_ in servers.values():
                sig(pr.pid,signal.SIGCONT); pr.terminate()
            for pr,_ in servers.values():
                try: pr.wait(15)
                except subprocess.TimeoutExpired: pr.kill()
        one=res[kinds[0]]
        print(f'## {scenario}: {rounds} rounds of {secs} s; load1 {os.getloadavg()[0]:.1f}')
        for k in kinds:
            rate=st.median(x[0] for x in res[k]); c=st.median(x[1] for x in res[k])
            ratio=st.median(a[0]/b[0] for a,b in zip(res[k],one)); add=st.median(a[1]-b[1] for a,b in zip(res[k],one))
            adds=sorted(a[1]-b[1] for a,b in zip(res[k],one))
            allroles={n for r in roles[k] for n in r}
            rr={n:round(st.median(r.get(n,0) for r in roles[k]),2) for n in allroles}
            print(f'{k:10} rate {rate:9.0f}  ratio {ratio:.3f}  cpu {c:6.2f} us  added {add:+6.2f} [{adds[0]:+.2f} {adds[-1]:+.2f}]  ',{n:v for n,v in sorted(rr.items(),key=lambda i:-i[1]) if v>=.05},flush=True)
if __name__=='__main__': main()
