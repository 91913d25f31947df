package doctor

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Protocols that a port may speak.
const (
	speaksMQTT = "MQTT"
	speaksAMQP = "AMQP"
	speaksHTTP = "HTTP"
)

// questions are the first bytes of clients, and the beginnings of the answers. A server of another
// protocol may answer as well: one for HTTP answers everything with status 400.
var questions = []struct{ protocol, question, answer string }{
	{speaksMQTT, "\x10\x0c\x00\x04MQTT\x04\x02\x00\x0a\x00\x00", "\x20\x02"},
	{speaksAMQP, "AMQP\x03\x01\x00\x00", "AMQP"},
	{speaksHTTP, "HEAD / HTTP/1.0\r\n\r\n", "HTTP"},
}

// answerWait bounds the wait for an answer to a question.
const answerWait = 2 * time.Second

// otherwise adds to the row of a connection that failed what the port speaks, if that is not what
// the transport wants.
func (p *Probe) otherwise(ctx context.Context, rows []Row, s *site, want string) []Row {
	switch rows[0].Kind {
	case transport.Network, transport.Timeout, transport.Protocol:
	default: // the service's answer
		return rows
	}
	got, secure := p.spoken(ctx, s)
	if got != "" && (got != want || secure == s.plaintext) {
		rows[0].Hint = fmt.Sprintf("this port speaks %s, and the transport wants %s: %s; ", spelled(got, secure),
			spelled(want, !s.plaintext), p.remedy(got, want, secure)) + rows[0].Hint
	}
	return rows
}

func spelled(protocol string, secure bool) string {
	if secure {
		return protocol + " with TLS"
	}
	return protocol + " without TLS"
}

// schemes are those of a broker's URL, without and with TLS.
var schemes = map[string][2]string{
	speaksMQTT: {"mqtt", "mqtts"}, speaksAMQP: {"amqp", "amqps"}, speaksHTTP: {"ws", "wss"},
}

// remedy says what to change when a port speaks another protocol than wanted.
func (p *Probe) remedy(got, want string, secure bool) string {
	if p.Target.URL == nil {
		return "check the port of -address"
	}
	i := 0
	if secure {
		i = 1
	}
	if got == want {
		return "give a URL with " + schemes[got][i] + "://, or another port"
	}
	return "check the port of the URL, or give one with " + schemes[got][i] + "://"
}

// wanted returns the protocol of a transport.
func (p *Probe) wanted(s subject) string {
	switch name := s.protocol.Name; {
	case name == "http" || strings.HasSuffix(name, "-ws") || p.Target.OverWebSocket():
		return speaksHTTP
	case name == "amqp":
		return speaksAMQP
	}
	return speaksMQTT
}

// wantedAt returns the protocol of the first transport that uses a port.
func (p *Probe) wantedAt(s *site) string {
	for _, one := range protocols(p) {
		if one.site.address == s.address && s.name != provisioningSite {
			return p.wanted(one)
		}
	}
	return speaksHTTP
}

// spoken asks a port which protocol it speaks, and whether over TLS. It returns an empty protocol
// if the answers do not show that.
func (p *Probe) spoken(ctx context.Context, s *site) (protocol string, secure bool) {
	secure = p.secured(ctx, s)
	for _, q := range questions {
		answer := p.answerTo(ctx, s, secure, q.question)
		for _, known := range questions {
			if strings.HasPrefix(answer, known.answer) {
				return known.protocol, secure
			}
		}
	}
	return "", secure
}

// secured reports whether a port completes a TLS handshake.
func (p *Probe) secured(ctx context.Context, s *site) bool {
	ctx, cancel := context.WithTimeout(ctx, min(answerWait, p.Options.Timeout))
	defer cancel()
	conn, _, err := p.handshake(ctx, s)
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was written
	return true
}

// answerTo returns the first bytes of the answer to a question; empty: there is none.
func (p *Probe) answerTo(ctx context.Context, s *site, secure bool, question string) string {
	ctx, cancel := context.WithTimeout(ctx, min(answerWait, p.Options.Timeout))
	defer cancel()
	var conn net.Conn
	var err error
	if secure {
		conn, _, err = p.handshake(ctx, s)
	} else {
		conn, err = p.dial(ctx, s)
	}
	if err != nil {
		return ""
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(conn, question); err != nil {
		return ""
	}
	answer := make([]byte, 4)
	n, _ := io.ReadFull(conn, answer) // a short answer is judged by what there is
	return string(answer[:n])
}
