package mqtt

import (
	"context"
	"encoding/binary"
	"strings"
	"sync"
	"testing"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/bag"
	"github.com/hubline-iot/hubline/transport/transporttest"
)

// The conformance suite with a second hub, which shares no code with testbroker and has
// cloud-to-device messages.
func TestConformanceWithAScriptedHub(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
		h := newScriptedHub(t)
		good, bad := testCreds(t), testCreds(t)
		bad.Sign, _ = transport.SharedKey("YmFk")
		h.knows = func(password string) bool {
			token, err := good.NewToken(context.Background()) // the bubble's clock has not moved since
			return err == nil && token.Text.Reveal() == password
		}
		return &transporttest.Pair{
			Transport: New(h.options()), Creds: good, WrongCreds: bad, Hub: h,
			HubMarks: []string{"(*scriptedHub)"},
			Features: transport.Messages | transport.Methods | transport.Desired | transport.Twin, MarksAgain: true,
			TellsAgain: true,
		}
	})
}

// scriptedHub is a hub of a few states: it knows one device and keeps its messages.
type scriptedHub struct {
	*hub
	knows func(password string) bool

	mu       sync.Mutex
	received []transporttest.Received
	holding  bool
	held     []func()
	refusal  transporttest.Refusal
	links    map[*scriptedLink]bool
	inbox    []*scriptedMessage
	lastID   uint16
}

type scriptedMessage struct {
	body string
	id   uint16
	by   *scriptedLink
	sent bool
}

type scriptedLink struct {
	*link
	raw        *memconn.Conn
	subscribed bool
}

func newScriptedHub(t testing.TB) *scriptedHub {
	h := &scriptedHub{hub: newHub(t), links: map[*scriptedLink]bool{}}
	h.net.SetBuffer(0)
	go h.serve()
	return h
}

func (h *scriptedHub) serve() {
	for {
		c, err := h.net.Accept()
		if err != nil {
			return
		}
		h.t.Cleanup(func() { _ = c.Close() })
		go h.talk(&scriptedLink{link: newLink(h.t, c), raw: c.(*memconn.Conn)})
	}
}

func (h *scriptedHub) talk(l *scriptedLink) {
	defer l.Close()
	connect, err := l.next()
	if err != nil || connect.kind != 1 {
		return
	}
	h.mu.Lock()
	refusal := h.refusal
	h.mu.Unlock()
	code := byte(0)
	switch {
	case refusal == transporttest.Mute:
		_, _ = l.drain()
		return
	case refusal == transporttest.Unavailable:
		code = 3
	case !h.knows(lastField(connect.body)):
		code = 5
	}
	_, _ = l.Write([]byte{typeConnack << 4, 2, 0, code})
	if code != 0 {
		return
	}
	h.mu.Lock()
	h.links[l] = true
	h.mu.Unlock()
	h.deliver()
	for {
		p, err := l.next()
		if err != nil || p.kind == typeDisconnect {
			break
		}
		h.packet(l, p)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.links, l)
	for _, m := range h.inbox {
		if m.by == l {
			m.by = nil
		}
	}
}

// lastField returns the last length-prefixed field of a CONNECT: the password.
func lastField(body []byte) string {
	rest := body[10:]
	for {
		n := int(binary.BigEndian.Uint16(rest))
		if len(rest) == 2+n {
			return string(rest[2:])
		}
		rest = rest[2+n:]
	}
}

func (h *scriptedHub) packet(l *scriptedLink, p packet) {
	switch p.kind {
	case typePublish:
		h.publish(l, p)
	case typePuback:
		h.mu.Lock()
		kept := h.inbox[:0]
		for _, m := range h.inbox {
			if m.by != l || m.id != p.id() {
				kept = append(kept, m)
			}
		}
		h.inbox = kept
		h.mu.Unlock()
	case 8: // SUBSCRIBE
		h.mu.Lock()
		l.subscribed = true
		h.mu.Unlock()
		_, _ = l.Write(p.granted())
		h.deliver()
	case 12: // PINGREQ
		_, _ = l.Write([]byte{typePingresp << 4, 0})
	}
}

func (h *scriptedHub) publish(l *scriptedLink, p packet) {
	if strings.HasPrefix(p.topic(), "$iothub/") {
		return // this hub has no twins
	}
	m := transporttest.Received{Again: p.flags&8 != 0, Message: transport.Message{Body: []byte(p.payload())}}
	properties, ok := strings.CutPrefix(p.topic(), "devices/dev-1/messages/events/")
	if !ok {
		_ = l.Close()
		return
	}
	bag.Decode(properties, &m.Message)
	answer := func() { _, _ = l.Write([]byte{typePuback << 4, 2, byte(p.id() >> 8), byte(p.id())}) }
	h.mu.Lock()
	h.received = append(h.received, m)
	if h.holding {
		h.held = append(h.held, answer)
		answer = func() {}
	}
	h.mu.Unlock()
	answer()
}

// deliver sends the messages without a receiver to a connection that subscribed.
func (h *scriptedHub) deliver() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.links {
		for _, m := range h.inbox {
			if m.by == nil && l.subscribed {
				h.lastID++
				m.by, m.id = l, h.lastID
				packet := publishBytes("devices/dev-1/messages/devicebound/%24.to=x", m.id, m.body)
				if m.sent {
					packet[0] |= 8 // DUP
				}
				m.sent = true
				_, _ = l.Write(packet) // never blocks: no limit
			}
		}
	}
}

func (h *scriptedHub) Received() []transporttest.Received {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]transporttest.Received(nil), h.received...)
}

func (h *scriptedHub) HoldAnswers(on bool) {
	h.mu.Lock()
	held := h.held
	h.holding, h.held = on, nil
	h.mu.Unlock()
	for _, answer := range held {
		answer()
	}
}

func (h *scriptedHub) Cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.links {
		l.raw.Reset()
	}
}

func (h *scriptedHub) Silence() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.links {
		l.raw.Hold(true)
		l.raw.SetBuffer(64 << 10)
	}
}

func (h *scriptedHub) Refuse(r transporttest.Refusal) {
	h.net.Refuse(r == transporttest.Unreachable)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refusal = r
}

func (h *scriptedHub) Deliver(body string) {
	h.mu.Lock()
	h.inbox = append(h.inbox, &scriptedMessage{body: body})
	h.mu.Unlock()
	h.deliver()
}

func (h *scriptedHub) Undelivered() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.inbox)
}
