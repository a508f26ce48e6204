// coder/websocket as a peer: `go server plain|deflate` or `go client URL plain|deflate CONNECTIONS BYTES`.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/coder/websocket"
)

func main() {
	if os.Args[1] == "server" {
		serve(mode(os.Args[2]))
	}
	connections, _ := strconv.Atoi(os.Args[4])
	size, _ := strconv.Atoi(os.Args[5])
	ask(os.Args[2], mode(os.Args[3]), connections, size)
	fmt.Println("ok")
}

func mode(name string) websocket.CompressionMode {
	if name == "deflate" {
		return websocket.CompressionContextTakeover
	}
	return websocket.CompressionDisabled
}

func serve(mode websocket.CompressionMode) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Printf("listening on ws://%s\n", listener.Addr())
	check(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: mode})
		if err != nil {
			return
		}
		defer conn.CloseNow()
		conn.SetReadLimit(-1)
		for {
			kind, message, err := conn.Read(r.Context())
			if err != nil || conn.Write(r.Context(), kind, message) != nil {
				return
			}
		}
	})))
}

func ask(url string, mode websocket.CompressionMode, connections, size int) {
	ctx := context.Background()
	open := func() *websocket.Conn {
		conn, response, err := websocket.Dial(ctx, url, &websocket.DialOptions{CompressionMode: mode})
		check(err)
		conn.SetReadLimit(-1)
		if strings.Contains(response.Header.Get("Sec-WebSocket-Extensions"), "permessage-deflate") != (mode != websocket.CompressionDisabled) {
			panic("not what was asked for")
		}
		return conn
	}
	echo := func(conn *websocket.Conn, kind websocket.MessageType, message []byte) {
		check(conn.Write(ctx, kind, message))
		read, got, err := conn.Read(ctx)
		check(err)
		if read != kind || !bytes.Equal(got, message) {
			panic("not what was sent")
		}
	}
	conn := open()
	for _, n := range []int{0, 1, 125, 126, 127, 65535, 65536, 1 << 20, size} {
		echo(conn, websocket.MessageText, bytes.Repeat([]byte("quick brown fox "), n/16+1)[:n])
		noise := make([]byte, n)
		for i := range noise {
			noise[i] = byte(i * i >> 3)
		}
		echo(conn, websocket.MessageBinary, noise)
	}
	check(conn.Close(websocket.StatusNormalClosure, "done"))
	var group sync.WaitGroup
	for range connections {
		conn := open()
		group.Add(1)
		go func() {
			defer group.Done()
			for n := range 3 {
				echo(conn, websocket.MessageBinary, bytes.Repeat([]byte{byte(n)}, 700))
			}
			check(conn.Close(websocket.StatusGoingAway, ""))
		}()
	}
	group.Wait()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
