package modems

import (
	"net"
	"sync"
	"time"
)

// Port is one end of a serial line, a board.Port on a connection.
type Port struct {
	conn  net.Conn
	ended chan struct{}

	mu      sync.Mutex
	got     []byte
	arrived chan struct{} // closed and replaced when bytes come
}

// fifo is how many bytes one Read returns at most, as a UART.
const fifo = 16

// NewPort returns the port of the board's end. Its goroutine ends with the connection.
func NewPort(c net.Conn) *Port {
	p := &Port{conn: c, ended: make(chan struct{}), arrived: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for {
			var buf [256]byte
			n, err := c.Read(buf[:])
			p.mu.Lock()
			p.got = append(p.got, buf[:n]...)
			close(p.arrived)
			p.arrived = make(chan struct{})
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

// tick is the longest Pause: an hour of silence consists of it.
const tick = 50 * time.Millisecond

// Pause implements board.Port: as on a board that sleeps until its UART interrupts, or its timer.
// Tests run in fake time.
func (p *Port) Pause() {
	p.mu.Lock()
	arrived := p.arrived
	p.mu.Unlock()
	timer := time.NewTimer(tick)
	defer timer.Stop()
	select {
	case <-arrived:
	case <-timer.C:
	}
}
