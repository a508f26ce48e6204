// An echo server with coder/websocket: `coder plain|deflate [read]`. Prints its port. With `read`
// it reads messages with Read, the library's function for a whole message. Without it, it reads
// them into one buffer that it reuses, which is the fastest way, although no example of the library
// shows it.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/coder/websocket"
)

func main() {
	options := &websocket.AcceptOptions{InsecureSkipVerify: true}
	if len(os.Args) > 1 && os.Args[1] == "deflate" {
		options.CompressionMode = websocket.CompressionNoContextTakeover
	}
	usesRead := len(os.Args) > 2 && os.Args[2] == "read"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, options)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		conn.SetReadLimit(1 << 20)
		ctx := context.Background()
		var message []byte
		for {
			var kind websocket.MessageType
			if usesRead {
				kind, message, err = conn.Read(ctx)
			} else {
				var reader io.Reader
				if kind, reader, err = conn.Reader(ctx); err == nil {
					message, err = readAll(reader, message[:0])
				}
			}
			if err != nil || conn.Write(ctx, kind, message) != nil {
				return
			}
		}
	})))
}

func readAll(reader io.Reader, into []byte) ([]byte, error) {
	for {
		if len(into) == cap(into) {
			into = append(into, 0)[:len(into)]
		}
		n, err := reader.Read(into[len(into):cap(into)])
		into = into[:len(into)+n]
		if err == io.EOF {
			return into, nil
		}
		if err != nil {
			return into, err
		}
	}
}
