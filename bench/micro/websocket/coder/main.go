// An echo server with coder/websocket: `coder plain|deflate`. Prints its port.
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
			kind, reader, err := conn.Reader(ctx)
			if err != nil {
				return
			}
			// Into one buffer, which Read would allocate for each message.
			message, err = readAll(reader, message[:0])
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
