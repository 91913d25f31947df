package modems

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"
)

// activate begins the data connection.
func (m *Modem) activate(name string) {
	m.mu.Lock()
	c := &m.cfg
	allowed := m.radio && (c.APN == "" || c.APN == m.apn) && (c.User == "" || c.User == m.user && c.Secret == m.secret)
	was := m.attached
	m.attached = m.attached || allowed
	m.mu.Unlock()
	switch {
	case was:
		m.answer("ERROR")
	case name == "" && allowed:
		m.answer("OK")
	case name == "":
		m.answer("+CME ERROR: 30")
	case allowed:
		m.answer("OK", name+": 0")
	default:
		m.answer("OK", name+": 1")
	}
}

// deactivate ends the data connection.
func (m *Modem) deactivate(name string) {
	m.mu.Lock()
	was := m.attached
	m.attached = false
	for id, s := range m.sockets {
		s.conn.Close()
		delete(m.sockets, id)
	}
	m.mu.Unlock()
	switch {
	case name == "":
		m.answer("OK")
	case was:
		m.answer("OK", name+": 0")
	default:
		m.answer("ERROR")
	}
}

// open connects a socket.
func (m *Modem) open(name, socketID, host, port string, secure bool) {
	id := number([]string{socketID}, 0)
	m.mu.Lock()
	m.dials++
	attached, taken := m.attached, m.sockets[id] != nil
	start := m.start
	m.mu.Unlock()
	code := 0
	var conn net.Conn
	switch {
	case !attached || id < 0:
		m.answer("ERROR")
		return
	case taken:
		code = 563
	default:
		conn, code = m.dial(net.JoinHostPort(host, port), host, secure)
	}
	if code != 0 && name == "+CIPOPEN" {
		m.answer(fmt.Sprintf("%s: %d,%d", name, id, code), "ERROR")
		return
	}
	m.answer("OK", fmt.Sprintf("%s: %d,%d", name, id, code))
	if code != 0 {
		return
	}
	s := &socket{conn: conn}
	m.mu.Lock()
	if m.start != start {
		conn.Close()
	}
	m.sockets[id] = s
	m.mu.Unlock()
	m.readers.Go(func() { m.receive(name, id, s) }) // ends with the connection
}

// dialLimit bounds a dial.
const dialLimit = 20 * time.Second

// dial connects, and returns the modem's code for a failure.
func (m *Modem) dial(addr, host string, secure bool) (net.Conn, int) {
	failed, handshake := 10, 15
	if m.cfg.Family == Quectel {
		failed, handshake = 566, 579
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
	defer cancel()
	conn, err := m.cfg.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, failed
	}
	if !secure {
		return conn, 0
	}
	cfg, err := m.tlsConfig(host)
	if err != nil {
		conn.Close()
		return nil, handshake
	}
	session := tls.Client(conn, cfg)
	if err := session.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, handshake
	}
	return session, 0
}

// tlsConfig is what the settings say.
func (m *Modem) tlsConfig(host string) (*tls.Config, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	level := m.tls["authmode"] + m.tls["seclevel"]
	if level != "1" {
		return &tls.Config{InsecureSkipVerify: true}, nil //nolint:gosec // as the modem does
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(m.files[m.tls["cacert"]]) {
		return nil, errors.New("no certificate")
	}
	now := time.Unix(0, 0)
	if m.cfg.Now != nil {
		now = m.cfg.Now()
	}
	verify := func(s tls.ConnectionState) error {
		opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), CurrentTime: now}
		if m.cfg.Family == Quectel && m.tlsSetting("checkhost") == "1" {
			opts.DNSName = host
		}
		for _, c := range s.PeerCertificates[1:] {
			opts.Intermediates.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(opts)
		return err
	}
	//nolint:gosec // verify does what the settings say
	return &tls.Config{ServerName: host, InsecureSkipVerify: true, VerifyConnection: verify}, nil
}

func (m *Modem) tlsSetting(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tls[name]
}

// bufferSize is how much a socket holds for the board.
const bufferSize = 8 << 10

// receive buffers what comes for a socket, and tells the board.
func (m *Modem) receive(name string, id int, s *socket) {
	buf := make([]byte, 700)
	for {
		n, err := s.conn.Read(buf)
		m.mu.Lock()
		for len(s.data)+n > bufferSize && !s.closed && m.sockets[id] == s {
			m.mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			m.mu.Lock()
		}
		s.data = append(s.data, buf[:n]...)
		if n > 0 && !s.told && m.sockets[id] == s {
			s.told = true
			m.sendLocked(fmt.Sprintf(receivedText[name], id))
		}
		if err != nil {
			if m.sockets[id] == s {
				m.hangUpLocked(id, s)
				m.sendLocked(fmt.Sprintf(closedText[name], id))
			}
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
	}
}

// receivedText and closedText are the events, by the command that opens.
var receivedText = map[string]string{
	"+CIPOPEN": "\r\n+CIPRXGET: 1,%d\r\n", "+CCHOPEN": "\r\n+CCHEVENT: %d,RECV EVENT\r\n",
	"+QIOPEN": "\r\n+QIURC: \"recv\",%d\r\n", "+QSSLOPEN": "\r\n+QSSLURC: \"recv\",%d\r\n",
}

var closedText = map[string]string{
	"+CIPOPEN": "\r\n+IPCLOSE: %d,1\r\n", "+CCHOPEN": "\r\n+CCH_PEER_CLOSED: %d\r\n",
	"+QIOPEN": "\r\n+QIURC: \"closed\",%d\r\n", "+QSSLOPEN": "\r\n+QSSLURC: \"closed\",%d\r\n",
}

// hangUpLocked ends a connection. What has come can still be read.
func (m *Modem) hangUpLocked(_ int, s *socket) {
	s.closed = true
	s.conn.Close()
}

func (m *Modem) waiting(id int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sockets[id]; s != nil {
		return len(s.data)
	}
	return 0
}

// shut closes a socket.
func (m *Modem) shut(name, socketID string) {
	id := number([]string{socketID}, 0)
	m.mu.Lock()
	s := m.sockets[id]
	delete(m.sockets, id)
	m.mu.Unlock()
	if s != nil {
		s.conn.Close()
	}
	switch {
	case name == "":
		m.answer("OK")
	case s == nil:
		m.answer("ERROR")
	default:
		m.answer("OK", fmt.Sprintf("%s: %d,0", name, id))
	}
}

// transmit takes a payload and sends it.
func (m *Modem) transmit(name string, args []string) {
	id, n := number(args, 0), number(args, 1)
	m.mu.Lock()
	s := m.sockets[id]
	usable := s != nil && !s.closed && n > 0 && n <= 1460
	m.mu.Unlock()
	if !usable {
		m.answer("ERROR")
		return
	}
	m.send("\r\n> ")
	p, err := m.payload(n)
	if err != nil {
		return
	}
	_, err = s.conn.Write(p)
	switch {
	case err != nil && name == "":
		m.answer("ERROR")
	case name == "":
		m.answer("SEND OK")
	case name == "+CIPSEND" && err != nil:
		m.answer("OK", fmt.Sprintf("%s: %d,%d,-1", name, id, n))
	case name == "+CIPSEND":
		m.answer("OK", fmt.Sprintf("%s: %d,%d,%d", name, id, n, n))
	case err != nil:
		m.answer("OK", fmt.Sprintf("%s: %d,9", name, id))
	default:
		m.answer("OK", fmt.Sprintf("%s: %d,0", name, id))
	}
}

// give answers with what has come.
func (m *Modem) give(prefix string, args []string) {
	id, n := number(args, 0), number(args, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sockets[id]
	if s == nil || n < 1 {
		m.answerLocked("ERROR")
		return
	}
	p := s.data[:min(n, len(s.data))]
	s.data = s.data[len(p):]
	if len(s.data) == 0 {
		s.told = false
	}
	switch prefix {
	case "+CIPRXGET: 2,":
		if len(p) == 0 {
			m.answerLocked("+IP ERROR: No data", "ERROR")
			return
		}
		m.dataLocked(fmt.Sprintf("%s%d,%d,%d", prefix, id, len(p), len(s.data)), p)
		m.sendLocked("OK\r\n")
	case "+CCHRECV: DATA,":
		m.answerLocked("OK")
		m.dataLocked(fmt.Sprintf("%s%d,%d", prefix, id, len(p)), p)
		m.sendLocked(fmt.Sprintf("+CCHRECV: %d,0\r\n", id))
	default:
		m.dataLocked(fmt.Sprintf("%s%d", prefix, len(p)), p)
		m.sendLocked("OK\r\n")
	}
}

// dataLocked sends a line, data behind it, and the end of the data. No event comes between.
func (m *Modem) dataLocked(line string, p []byte) {
	events := m.events
	m.events = false
	m.answerLocked(line)
	m.putLocked(string(p))
	m.events = events
	m.sendLocked("\r\n")
}
