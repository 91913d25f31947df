package atemulator

import (
	"net"
	"sync"
	"time"
)

// Port is one end of a serial line, a board.Port on a connection.
type Port struct {
	// Poll is how long Pause waits; default 1 ms. It is set before the first Pause.
	Poll time.Duration

	conn  net.Conn
	ended chan struct{}

	mu  sync.Mutex
	got []byte
}

// fifo is how many bytes one Read returns at most, as a UART.
const fifo = 16

// NewPort returns the port of the board's end. Its goroutine ends with the connection.
func NewPort(c net.Conn) *Port {
	p := &Port{Poll: time.Millisecond, conn: c, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for {
			var buf [256]byte
			n, err := c.Read(buf[:])
			p.mu.Lock()
			p.got = append(p.got, buf[:n]...)
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return p
}

// Close closes the line, and waits for the port's goroutine.
func (p *Port) Close() {
	p.conn.Close()
	<-p.ended
}

// Read implements board.Port.
func (p *Port) Read(b []byte) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := copy(b[:min(len(b), fifo)], p.got)
	p.got = p.got[n:]
	return n
}

// Write implements board.Port.
func (p *Port) Write(b []byte) int {
	n, _ := p.conn.Write(b)
	return n
}

// Pause implements board.Port. Tests run in fake time.
func (p *Port) Pause() { time.Sleep(p.Poll) }
