package modems

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
)

// Line is the other end of a board.Modem's serial line. It connects to a hub on a board's
// request, and sends the time.
type Line struct {
	// Port is the serial line. Dial connects to the host that the board names, which may be empty. Now
	// is the time for the board.
	Port net.Conn
	Dial func(ctx context.Context, network, host string) (net.Conn, error)
	Now  func() time.Time
	// Dials is the number of calls of Dial. Read it after Serve.
	Dials int

	writing sync.Mutex // of Port
	readers sync.WaitGroup

	mu   sync.Mutex // guards the fields below
	conn net.Conn   // the open connection, nil without
	name byte       // name of conn

	host string // of the next connections; empty: the board named none
}

// Serve executes the board's commands until the line is closed.
func (m *Line) Serve() error {
	defer m.readers.Wait()
	defer m.close()
	in := bufio.NewReader(m.Port)
	var out []byte
	for {
		out = out[:0]
		for len(out) == 0 || in.Buffered() > 0 {
			b, err := in.ReadByte()
			if err != nil {
				return err
			}
			if b != board.Escape {
				out = append(out, b)
				continue
			}
			if b, err = in.ReadByte(); err != nil {
				return err
			}
			if b == board.Escape {
				out = append(out, b)
				continue
			}
			m.send(out)
			out = out[:0]
			if err := m.obey(b, in); err != nil {
				return err
			}
			break
		}
		m.send(out)
	}
}

// obey executes one command.
func (m *Line) obey(command byte, in io.ByteReader) error {
	switch command {
	case 'T':
		m.tell(fmt.Appendf(nil, "T%016x", m.Now().UnixMilli()))
		return nil
	case 'N':
		var host []byte
		for {
			b, err := in.ReadByte()
			if err != nil {
				return err
			}
			if b == 0 {
				m.host = string(host)
				return nil
			}
			host = append(host, b)
		}
	case 'D', 'H':
		name, err := in.ReadByte()
		if err != nil {
			return err
		}
		m.close()
		if command == 'D' {
			m.connect(name)
		}
		return nil
	}
	return fmt.Errorf("the board sent command %q", command)
}

// connect opens the connection name, and answers.
func (m *Line) connect(name byte) {
	conn, err := m.Dial(context.Background(), "tcp", m.host)
	m.mu.Lock()
	m.Dials++
	if err == nil {
		m.conn, m.name = conn, name
	}
	m.mu.Unlock()
	if err != nil {
		m.tell([]byte{'H', name})
		return
	}
	m.tell([]byte{'C', name})
	m.readers.Go(func() { // ends with the connection
		var buf [512]byte
		for {
			n, err := conn.Read(buf[:])
			m.pass(buf[:n])
			if err != nil {
				m.tell([]byte{'H', name})
				return
			}
		}
	})
}

// close closes the connection, if there is one.
func (m *Line) close() {
	m.mu.Lock()
	conn := m.conn
	m.conn = nil
	m.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	m.readers.Wait() // so that its data cannot follow the start of the next one
}

// send forwards data of the board. The connection's reader notices errors.
func (m *Line) send(p []byte) {
	m.mu.Lock()
	conn := m.conn
	m.mu.Unlock()
	if conn != nil && len(p) > 0 {
		_, _ = conn.Write(p)
	}
}

// pass forwards data of the hub.
func (m *Line) pass(p []byte) {
	out := make([]byte, 0, 2*len(p))
	for _, b := range p {
		if out = append(out, b); b == board.Escape {
			out = append(out, b)
		}
	}
	m.write(out)
}

func (m *Line) tell(command []byte) { m.write(append([]byte{board.Escape}, command...)) }

func (m *Line) write(p []byte) {
	m.writing.Lock()
	defer m.writing.Unlock()
	_, _ = m.Port.Write(p) // Serve notices the end of the line
}
