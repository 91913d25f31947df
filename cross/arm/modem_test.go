package arm

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

// modem is the other end of a board.Modem's serial line: it connects to a hub when asked to, and
// tells the time.
type modem struct {
	line net.Conn
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	now  func() time.Time

	writing sync.Mutex // of line
	readers sync.WaitGroup

	mu    sync.Mutex // guards what follows
	conn  net.Conn   // the connection that is up, nil without
	name  byte       // of it
	dials int
}

// serve obeys the board until the line is closed.
func (m *modem) serve() error {
	defer m.readers.Wait()
	defer m.hangUp()
	in := bufio.NewReader(m.line)
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

// obey does what one command says.
func (m *modem) obey(command byte, in io.ByteReader) error {
	switch command {
	case 'T':
		m.tell(fmt.Appendf(nil, "T%016x", m.now().UnixMilli()))
		return nil
	case 'D', 'H':
		name, err := in.ReadByte()
		if err != nil {
			return err
		}
		m.hangUp()
		if command == 'D' {
			m.connect(name)
		}
		return nil
	}
	return fmt.Errorf("the board sent command %q", command)
}

// connect makes connection name, and answers.
func (m *modem) connect(name byte) {
	conn, err := m.dial(context.Background(), "tcp", "hub")
	m.mu.Lock()
	m.dials++
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

// hangUp ends the connection, if there is one.
func (m *modem) hangUp() {
	m.mu.Lock()
	conn := m.conn
	m.conn = nil
	m.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	m.readers.Wait() // so that nothing of it comes after the next one's beginning
}

// send passes data of the board on. What goes wrong the connection's reader sees.
func (m *modem) send(p []byte) {
	m.mu.Lock()
	conn := m.conn
	m.mu.Unlock()
	if conn != nil && len(p) > 0 {
		_, _ = conn.Write(p)
	}
}

// pass passes data of the hub on.
func (m *modem) pass(p []byte) {
	out := make([]byte, 0, 2*len(p))
	for _, b := range p {
		if out = append(out, b); b == board.Escape {
			out = append(out, b)
		}
	}
	m.write(out)
}

func (m *modem) tell(command []byte) { m.write(append([]byte{board.Escape}, command...)) }

func (m *modem) write(p []byte) {
	m.writing.Lock()
	defer m.writing.Unlock()
	_, _ = m.line.Write(p) // serve sees the end of the line
}
