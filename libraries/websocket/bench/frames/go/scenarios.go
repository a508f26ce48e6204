package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	_ "unsafe" // for go:linkname

	"crypto/sha1"
	"encoding/base64"

	"github.com/coder/websocket"
)

// The layout of the module's own type, which is the same in both versions.
type header struct {
	fin, rsv1, rsv2, rsv3 bool
	opcode                int
	payloadLength         int64
	masked                bool
	maskKey               uint32
}

//go:linkname readFrameHeader github.com/coder/websocket.(*Conn).readFrameHeader
func readFrameHeader(c *websocket.Conn, ctx context.Context) (header, error)

//go:linkname readFramePayload github.com/coder/websocket.(*Conn).readFramePayload
func readFramePayload(c *websocket.Conn, ctx context.Context, p []byte) (int, error)

type scenario struct {
	name, what string
	begin      func() func()
}

var scenarios = []scenario{
	{"header", "readFrameHeader from its buffer, background context", func() func() { return headers(context.Background()) }},
	{"header-cancellable", "the same with a context that can be cancelled", func() func() { return headers(cancellable()) }},
	{"payload-512", "readFramePayload of 512 bytes from its buffer, background context", func() func() { return payloads(context.Background()) }},
	{"payload-512-cancellable", "the same with a context that can be cancelled", func() func() { return payloads(cancellable()) }},
	{"read-512", "a masked frame of 512 bytes read by a server: Reader and ReadFull", func() func() { return reads(context.Background()) }},
	{"read-512-cancellable", "the same with a context that can be cancelled", func() func() { return reads(cancellable()) }},
	{"write-512", "a frame of 512 bytes written by a server to nowhere", func() func() { return writes(context.Background()) }},
	{"write-512-cancellable", "the same with a context that can be cancelled", func() func() { return writes(cancellable()) }},
	{"echo-512", "a message of 512 bytes there and back over net.Pipe", func() func() { return echo(context.Background()) }},
	{"echo-512-cancellable", "the same with a context that can be cancelled", func() func() { return echo(cancellable()) }},
}

func cancellable() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	keep = cancel
	return ctx
}

var keep context.CancelFunc

// A reader that returns the same bytes again and again. The caller's buffer is always the same one,
// so the bytes are copied only once, and a read costs as much as reading from a buffer.
type replay struct {
	bytes    []byte
	isCopied bool
}

func (r *replay) Read(p []byte) (int, error) {
	if len(p) < len(r.bytes) {
		panic("the buffer is smaller than was thought")
	}
	if !r.isCopied {
		copy(p, r.bytes)
		r.isCopied = true
	}
	return len(r.bytes), nil
}

// A reader that copies the same bytes again and again.
type endless struct {
	bytes []byte
	at    int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		k := copy(p[n:], e.bytes[e.at:])
		n += k
		e.at = (e.at + k) % len(e.bytes)
	}
	return n, nil
}

type transport struct {
	io.Reader
	io.Writer
}

func (transport) Close() error { return nil }

// Returns a client's connection over a transport, as Dial creates it.
func dial(rw io.ReadWriteCloser) *websocket.Conn {
	client := &http.Client{Transport: upgrade{rw}}
	conn, _, err := websocket.Dial(context.Background(), "ws://host/", &websocket.DialOptions{HTTPClient: client})
	check(err)
	conn.SetReadLimit(-1)
	return conn
}

type upgrade struct{ rw io.ReadWriteCloser }

func (u upgrade) RoundTrip(request *http.Request) (*http.Response, error) {
	sum := sha1.Sum([]byte(request.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	answer := http.Header{}
	answer.Set("Upgrade", "websocket")
	answer.Set("Connection", "Upgrade")
	answer.Set("Sec-WebSocket-Accept", base64.StdEncoding.EncodeToString(sum[:]))
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: answer, Body: u.rw, Request: request}, nil
}

// Returns a server's connection over a transport, as Accept creates it.
func accept(conn net.Conn) *websocket.Conn {
	request, _ := http.ReadRequest(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\nHost: host\r\nUpgrade: websocket\r\n" +
		"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")))
	accepted, err := websocket.Accept(hijack{http.Header{}, conn}, request, nil)
	check(err)
	accepted.SetReadLimit(-1)
	return accepted
}

type hijack struct {
	header http.Header
	conn   net.Conn
}

func (h hijack) Header() http.Header         { return h.header }
func (h hijack) Write(p []byte) (int, error) { return len(p), nil }
func (h hijack) WriteHeader(int)             {}
func (h hijack) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// A net.Conn over a reader. Written bytes are discarded.
type halfConn struct {
	net.Conn
	io.Reader
}

func (h halfConn) Read(p []byte) (int, error)  { return h.Reader.Read(p) }
func (h halfConn) Write(p []byte) (int, error) { return len(p), nil }
func (h halfConn) Close() error                { return nil }

func headers(ctx context.Context) func() {
	// 2,048 unmasked binary frames without payload, which fill the buffer of 4,096 bytes.
	bytes := make([]byte, 4096)
	for n := 0; n < len(bytes); n += 2 {
		bytes[n] = 0x82
	}
	conn := dial(transport{&replay{bytes: bytes}, io.Discard})
	return func() {
		h, err := readFrameHeader(conn, ctx)
		if err != nil || h.payloadLength != 0 || !h.fin {
			panic("not a header")
		}
	}
}

func payloads(ctx context.Context) func() {
	conn := dial(transport{&replay{bytes: make([]byte, 4096)}, io.Discard})
	payload := make([]byte, 512)
	return func() {
		n, err := readFramePayload(conn, ctx, payload)
		if err != nil || n != len(payload) {
			panic("not a payload")
		}
	}
}

func reads(ctx context.Context) func() {
	frame := append([]byte{0x82, 0xFE, 0x02, 0x00, 1, 2, 3, 4}, make([]byte, 512)...)
	conn := accept(halfConn{Reader: &endless{bytes: frame}})
	payload := make([]byte, 512)
	return func() {
		_, reader, err := conn.Reader(ctx)
		check(err)
		_, err = io.ReadFull(reader, payload)
		check(err)
		// The end of the message, which the next call of Reader requires.
		if n, err := reader.Read(payload); n != 0 || err != io.EOF {
			panic("not the end")
		}
	}
}

func writes(ctx context.Context) func() {
	conn := accept(halfConn{Reader: strings.NewReader("")})
	payload := make([]byte, 512)
	return func() {
		check(conn.Write(ctx, websocket.MessageBinary, payload))
	}
}

func echo(ctx context.Context) func() {
	here, there := net.Pipe()
	server := accept(there)
	client := dial(here)
	go func() {
		for {
			kind, message, err := server.Read(ctx)
			check(err)
			check(server.Write(ctx, kind, message))
		}
	}()
	payload := make([]byte, 512)
	return func() {
		check(client.Write(ctx, websocket.MessageBinary, payload))
		_, message, err := client.Read(ctx)
		if err != nil || len(message) != len(payload) {
			panic("not an echo")
		}
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
