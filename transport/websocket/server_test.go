package websocket

// The server side of WebSocket, RFC 6455.

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

// frame is a frame of the client, unmasked.
type frame struct {
	op      byte
	fin     bool
	payload []byte
}

// server is a connection after the upgrade. As a net.Conn it carries the bytes in binary frames;
// Read and nextFrame are called by one goroutine.
type server struct {
	net.Conn
	request *http.Request
	r       *bufio.Reader
	rest    []byte

	mu    sync.Mutex // orders writes of frames
	pongs chan string
}

// readRequest reads a request for an upgrade without answering it.
func readRequest(c net.Conn) (*server, error) {
	w := &server{Conn: c, r: bufio.NewReader(c), pongs: make(chan string, 100)}
	var err error
	w.request, err = http.ReadRequest(w.r)
	return w, err
}

// accept answers the request of a new connection with the upgrade to the requested sub-protocol.
func accept(c net.Conn) (*server, error) {
	w, err := readRequest(c)
	if err != nil {
		return nil, err
	}
	h := w.request.Header
	switch {
	case w.request.Method != http.MethodGet, !strings.EqualFold(h.Get("Upgrade"), "websocket"),
		!strings.EqualFold(h.Get("Connection"),
			"Upgrade"),
		h.Get("Sec-WebSocket-Version") != "13":
		return nil, fmt.Errorf("not an upgrade: %v", w.request)
	}
	return w, w.upgrade("Sec-WebSocket-Protocol: " + h.Get("Sec-WebSocket-Protocol") + "\r\n")
}

// upgrade answers the request with 101 and additional header lines.
func (c *server) upgrade(header string) error {
	sum := sha1.Sum([]byte(c.request.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	_, err := io.WriteString(c.Conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "+
		"Upgrade\r\nSec-WebSocket-Accept: "+
		base64.StdEncoding.EncodeToString(sum[:])+"\r\n"+header+"\r\n")
	return err
}

// nextFrame reads a frame.
func (c *server) nextFrame() (frame, error) {
	var head [14]byte
	if _, err := io.ReadFull(c.r, head[:2]); err != nil {
		return frame{}, err
	}
	f := frame{op: head[0] & 15, fin: head[0]&0x80 != 0}
	if head[0]&0x70 != 0 || head[1]&0x80 == 0 {
		return f, errors.New("reserved bits, or no mask")
	}
	size := uint64(head[1] & 0x7f)
	var err error
	switch size {
	case 126:
		_, err = io.ReadFull(c.r, head[:2])
		size = uint64(binary.BigEndian.Uint16(head[:]))
	case 127:
		_, err = io.ReadFull(c.r, head[:8])
		size = binary.BigEndian.Uint64(head[:])
	}
	if err != nil {
		return f, err
	}
	if f.op >= 8 && (size > 125 || !f.fin) || size > 1<<20 {
		return f, errors.New("frame too large")
	}
	var mask [4]byte
	if _, err := io.ReadFull(c.r, mask[:]); err != nil {
		return f, err
	}
	f.payload = make([]byte, size)
	_, err = io.ReadFull(c.r, f.payload)
	for i := range f.payload {
		f.payload[i] ^= mask[i&3]
	}
	return f, err
}

// Read returns the bytes of binary frames. The client's pongs go to pongs; its Close frame is
// io.EOF.
func (c *server) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		f, err := c.nextFrame()
		if err != nil {
			return 0, err
		}
		switch f.op {
		case opBinary, opContinuation:
			c.rest = f.payload
		case opPong:
			c.pongs <- string(f.payload)
		case opClose:
			return 0, io.EOF
		default:
			return 0, fmt.Errorf("opcode %d", f.op)
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write sends p as one binary message in one frame.
func (c *server) Write(p []byte) (int, error) {
	if err := c.writeFrame(opBinary, true, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// writeFrame sends any frame.
func (c *server) writeFrame(op byte, fin bool, payload []byte) error {
	if fin {
		op |= 0x80
	}
	b := []byte{op}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.Conn.Write(append(b, payload...))
	return err
}
