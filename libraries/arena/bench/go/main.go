// Micro benchmarks of go-arena, with the command line of rookery-bench-arena:
// `list`, and `run <scenario> <contender> <iterations>`.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	arena "github.com/wundergraph/go-arena"
	before "rookery/before-cursor"
)

// What the arenas of both versions can do.
type allocator interface {
	Alloc(size, alignment uintptr) unsafe.Pointer
	Reset()
	Cap() int
}

func cursor() allocator       { return arena.NewMonotonicArena() }
func beforeCursor() allocator { return before.NewMonotonicArena() }

// The newest release with one buffer that is large enough for a period, which is its best case.
func cursorLarge() arena.Arena {
	return arena.NewMonotonicArena(arena.WithMinBufferSize(128 * 1024))
}

func beforeCursorLarge() before.Arena {
	return before.NewMonotonicArena(before.WithMinBufferSize(128 * 1024))
}

// What the arenas of both versions for several threads can do.
func shared() allocator       { return arena.NewConcurrentArena(cursorLarge()) }
func beforeShared() allocator { return before.NewConcurrentArena(beforeCursorLarge()) }

type outcome struct {
	Scenario    string  `json:"scenario"`
	Contender   string  `json:"contender"`
	Iterations  int     `json:"iterations"`
	NsPerOp     float64 `json:"ns_per_op"`
	AllocsPerOp float64 `json:"allocs_per_op"`
	BytesPerOp  float64 `json:"bytes_per_op"`
	Peak        int     `json:"peak_bytes,omitempty"`
	Resident    int     `json:"resident_bytes"`
	Waste       float64 `json:"waste_percent,omitempty"`
}

type scenario struct {
	name, contender, what string
	run                   func(n int) outcome
}

var scenarios = []scenario{
	{"const-layout", "go-arena", "64 bytes aligned to 8; a reset every 1,024 allocations", func(n int) outcome { return constant(cursorLarge(), n) }},
	{"const-layout", "go-arena-before", "the same before the cursor (v1.1.0)", func(n int) outcome { return constant(beforeCursorLarge(), n) }},
	{"dynamic-layout", "go-arena-before", "the same before the cursor", func(n int) outcome { return dynamic(beforeCursorLarge(), n) }},
	{"dynamic-layout", "go-arena", "1 to 64 bytes aligned to 1, 2, 4, 8 or 16, in an order that does not repeat; a reset every 1,024 allocations", func(n int) outcome { return dynamic(cursorLarge(), n) }},
	{"full-chunks", "go-arena-10", "8 bytes, with 10 full buffers of 32 KiB before the cursor", func(n int) outcome { return behind(cursor(), 10, n) }},
	{"full-chunks", "go-arena-100", "with 100", func(n int) outcome { return behind(cursor(), 100, n) }},
	{"full-chunks", "go-arena-1000", "with 1,000", func(n int) outcome { return behind(cursor(), 1000, n) }},
	{"full-chunks", "go-arena-before-10", "before the cursor (v1.1.0), with 10", func(n int) outcome { return behind(beforeCursor(), 10, n) }},
	{"full-chunks", "go-arena-before-100", "before the cursor, with 100", func(n int) outcome { return behind(beforeCursor(), 100, n) }},
	{"full-chunks", "go-arena-before-1000", "before the cursor, with 1,000", func(n int) outcome { return behind(beforeCursor(), 1000, n) }},
	{"workload", "go-arena", "1 to 12 bytes (188 MB for 29 million), twice with a reset between", func(n int) outcome { return workload(cursor(), n) }},
	{"workload-before", "go-arena", "the workload's first part, small enough for the arena before the cursor", func(n int) outcome { return workload(cursor(), n) }},
	{"workload-before", "go-arena-before", "the same before the cursor", func(n int) outcome { return workload(beforeCursor(), n) }},
	{"waste-mixed", "go-arena", "8 to 512 bytes: the share of the reserved bytes that no request asked for", func(n int) outcome { return waste(n, mixed) }},
	{"waste-bimodal", "go-arena", "8 to 64 bytes and 1 in 16 of 4 to 12 KiB: the same share", func(n int) outcome { return waste(n, bimodal) }},
	{"waste-large", "go-arena", "10 bytes, 1 MB, 10 bytes (3 iterations): the same share", func(n int) outcome { return waste(n, large) }},
	{"concurrent", "go-arena", "64 bytes from each of two threads, then a reset; wall time", func(n int) outcome { return concurrent(shared, n) }},
	{"concurrent", "go-arena-before", "the same before the cursor", func(n int) outcome { return concurrent(beforeShared, n) }},
}

// CPU time of this process, as in the Rust program. The collector's time is included, because it is
// a cost of go-arena.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func measure(operations int, clock func() time.Duration, work func()) outcome {
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	start := clock()
	work()
	spent := clock() - start
	runtime.ReadMemStats(&m1)
	per := func(total float64) float64 { return total / float64(operations) }
	return outcome{
		NsPerOp:     per(float64(spent.Nanoseconds())),
		AllocsPerOp: per(float64(m1.Mallocs - m0.Mallocs)),
		BytesPerOp:  per(float64(m1.TotalAlloc - m0.TotalAlloc)),
	}
}

// The number of allocations between two resets.
const period = 1024

var sink unsafe.Pointer

func constant(a allocator, n int) outcome {
	return measure(n, processorTime, func() {
		for range n / period {
			for range period {
				sink = a.Alloc(64, 8)
			}
			a.Reset()
		}
	})
}

var aligns = [8]uintptr{1, 1, 2, 4, 8, 8, 8, 16}

func dynamic(a allocator, n int) outcome {
	state := uint64(1)
	return measure(n, processorTime, func() {
		for range n / period {
			for range period {
				bits := uintptr(next(&state))
				sink = a.Alloc(1+bits%64, aligns[bits>>6&7])
			}
			a.Reset()
		}
	})
}

func behind(a allocator, full, n int) outcome {
	for a.Cap() <= full*32*1024 {
		// Whole buffers are allocated, so that filling them takes no time before the cursor moves either.
		a.Alloc(32*1024, 8)
	}
	return measure(n, processorTime, func() {
		for range n {
			sink = a.Alloc(8, 8)
		}
	})
}

func workload(a allocator, n int) outcome {
	result := measure(2*n, processorTime, func() {
		small(a, n)
		a.Reset()
		small(a, n)
	})
	result.Peak = a.Cap()
	return result
}

func small(a allocator, n int) {
	state := uint64(1)
	for i := range n {
		size := 1 + uintptr(next(&state)*12>>32)
		*(*byte)(a.Alloc(size, 1)) = byte(i)
	}
}

// The bytes that n allocations leave unused, including the last buffer.
func waste(n int, size func(i int, state *uint64) uint64) outcome {
	a := cursor()
	state := uint64(1)
	requested := uint64(0)
	result := measure(n, processorTime, func() {
		for i := range n {
			bytes := size(i, &state)
			sink = a.Alloc(uintptr(bytes), 1)
			requested += bytes
		}
	})
	result.Waste = 100 * (1 - float64(requested)/float64(a.Cap()))
	return result
}

func mixed(_ int, state *uint64) uint64 { return 8 + next(state)%505 }

func bimodal(_ int, state *uint64) uint64 {
	if next(state)%16 == 0 {
		return 4096 + next(state)%8193
	}
	return 8 + next(state)%57
}

func large(i int, _ *uint64) uint64 {
	if i%3 == 1 {
		return 1_000_000
	}
	return 10
}

// The runner pins a micro benchmark to one core, and every thread of the process inherits that. The
// scenario for two threads needs two cores: this function widens the set of this thread and starts
// the program again, because only a new process has the set in all its threads.
func useAllProcessors() {
	if os.Getenv(widened) != "" {
		return
	}
	runtime.LockOSThread()
	var all [128]byte
	for i := range all {
		all[i] = 0xff
	}
	syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, uintptr(len(all)), uintptr(unsafe.Pointer(&all)))
	if self, err := os.Executable(); err == nil {
		_ = syscall.Exec(self, os.Args, append(os.Environ(), widened+"=1"))
	}
}

const widened = "ROOKERY_BENCH_ALL_PROCESSORS"

// Two goroutines that share one arena.
func concurrent(make func() allocator, n int) outcome {
	useAllProcessors()
	runtime.GOMAXPROCS(2)
	a := make()
	start := time.Now()
	clock := func() time.Duration { return time.Since(start) }
	return measure(n, clock, func() {
		for rounds := n / (2 * share); rounds > 0; rounds-- {
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					var last unsafe.Pointer
					for range share {
						last = a.Alloc(64, 8)
					}
					runtime.KeepAlive(last)
				})
			}
			both.Wait()
			a.Reset()
		}
	})
}

// The number of allocations of each thread between two resets.
const share = 131072

// 32 random bits from a linear congruential generator, the same as in the Rust program.
func next(state *uint64) uint64 {
	*state = *state*6364136223846793005 + 1442695040888963407
	return *state >> 32
}

// The peak resident memory of the process, from the kernel.
func residentPeak() int {
	status, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(status), "\n") {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kib * 1024
		}
	}
	return 0
}

func main() {
	runtime.GOMAXPROCS(1)
	arguments := os.Args[1:]
	if len(arguments) == 1 && arguments[0] == "list" {
		for _, s := range scenarios {
			line, _ := json.Marshal(map[string]string{"scenario": s.name, "contender": s.contender, "what": s.what})
			fmt.Println(string(line))
		}
		return
	}
	if len(arguments) == 4 && arguments[0] == "run" {
		n, err := strconv.Atoi(arguments[3])
		for _, s := range scenarios {
			if err == nil && s.name == arguments[1] && s.contender == arguments[2] {
				result := s.run(n)
				result.Scenario, result.Contender, result.Iterations = s.name, s.contender, n
				result.Resident = residentPeak()
				line, _ := json.Marshal(result)
				fmt.Println(string(line))
				return
			}
		}
	}
	fmt.Fprintln(os.Stderr, "usage: list | run <scenario> <contender> <iterations>")
	os.Exit(2)
}
