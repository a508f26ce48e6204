# nginx as Debian ships it, as one process, in front of servers with HTTP/1.1. This file is sourced.

# Replaces this process by nginx. Connections to both sides are kept alive for the whole run, as
# with all other contenders.
#
#     become_nginx <folder> <port> <further words of `listen`> <further lines of `server`> <servers of the upstream>
become_nginx() {
    local folder=$1 port=$2
    cat > "$folder/$port.conf" <<CONF
daemon off;
master_process off;
pid $folder/$port.pid;
worker_rlimit_nofile 16384;
events { worker_connections 16000; }
http {
  access_log off;
  keepalive_requests 100000000;
  keepalive_timeout 600s;
  client_max_body_size 100m;
  client_body_temp_path $folder;
  proxy_temp_path $folder;
  fastcgi_temp_path $folder;
  uwsgi_temp_path $folder;
  scgi_temp_path $folder;
  map \$http_upgrade \$connection_upgrade { default upgrade; '' ''; }
  upstream inner {
    $5
    keepalive 256;
    keepalive_requests 100000000;
  }
  server {
    listen 127.0.0.1:$port $3 backlog=4096;
    $4
    location / {
      proxy_pass http://inner;
      proxy_http_version 1.1;
      proxy_set_header Upgrade \$http_upgrade;
      proxy_set_header Connection \$connection_upgrade;
    }
  }
}
CONF
    exec nginx -e stderr -c "$folder/$port.conf"
}
