package dpsamqp_test

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsamqp"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const (
	ownKey    = "icIMXjwja1qYKoscSejYuXU0CWOBN4+SKhfWq13SBnA="
	assigning = `{"operationId":"4.d0.a/b c","status":"assigning"}`
	assigned  = `{"operationId":"op-1","status":"assigned","registrationState":{` +
		`"assignedHub":"hub1.example.test","deviceId":"dev-1","status":"assigned"}}`
)

// peer is a service that answers as written, frame by frame.
type peer struct {
	network *memconn.Network

	mechanisms []wire.Symbol // nil: PLAIN, EXTERNAL
	noSASL     bool          // it answers a header of SASL with that of AMQP
	insists    bool          // it answers each header with that of SASL
	code       uint8         // of the SASL outcome
	mute       string        // the step that gets no answer: "header", "init", "open", "begin", "attach"
	says       []byte        // sent behind its open
	closing    *wire.Error   // it closes the connection after its open
	refusal    *wire.Error   // it refuses links
	noCredit   bool
	replies    []func(*line)

	inits    []*wire.Init
	headers  []byte // protocol ids
	hosts    []string
	attaches []*wire.Attach
	requests []*wire.Message
	accepted int
}

// line is a connection of a peer.
type line struct {
	*peer
	conn    net.Conn
	channel uint16
	sender  uint32 // handle of the link for answers
	client  uint32 // handle of the link for requests
	sent    uint32
	credit  bool   // the client has given credit for answers
	waiting func() // handles the request that came before that
	cut     bool

	detached map[uint32]bool // by handle: the peer ended the link
	over     bool            // the peer ended the session

	// The present request.
	id          uint32
	correlation any
}

func (p *peer) serve() {
	for {
		c, err := p.network.Accept()
		if err != nil {
			return
		}
		l := &line{peer: p, conn: c, detached: map[uint32]bool{}}
		l.serve()
		_ = c.Close()
	}
}

func (l *line) serve() {
	var in []byte
	buf := make([]byte, 4096)
	for !l.cut {
		if len(in) >= wire.HeaderSize && string(in[:4]) == "AMQP" {
			l.header(in[4])
			in = in[wire.HeaderSize:]
			continue
		}
		f, n, err := wire.Split(in, 1<<20)
		if err != nil {
			return
		}
		if n == 0 {
			n, err := l.conn.Read(buf)
			if err != nil {
				return
			}
			in = append(in, buf[:n]...)
			continue
		}
		in = in[n:]
		if len(f.Body) == 0 {
			continue
		}
		got, payload, err := f.Performative()
		if err != nil {
			panic(err)
		}
		l.handle(f.Channel, got, payload)
	}
}

func (l *line) header(id byte) {
	l.headers = append(l.headers, id)
	if l.mute == "header" {
		return
	}
	if l.noSASL {
		id = wire.ProtocolAMQP
	}
	if l.insists {
		id = wire.ProtocolSASL
	}
	head := wire.ProtocolHeader(id)
	l.write(head[:])
	if id == wire.ProtocolSASL {
		all := l.mechanisms
		if all == nil {
			all = []wire.Symbol{"PLAIN", "EXTERNAL"}
		}
		l.send(0, &wire.Mechanisms{Mechanisms: all}, nil)
	}
}

func (l *line) handle(channel uint16, got wire.Performative, payload []byte) {
	switch m := got.(type) {
	case *wire.Init:
		l.inits = append(l.inits, m)
		if l.mute != "init" {
			l.send(0, &wire.Outcome{Code: l.code}, nil)
		}
	case *wire.Open:
		l.hosts = append(l.hosts, m.Hostname)
		if l.mute == "open" {
			return
		}
		l.send(0, &wire.Open{ContainerID: "peer", MaxFrameSize: 4096, ChannelMax: 0}, nil)
		l.write(l.says)
		if l.closing != nil {
			l.send(0, &wire.Close{Error: l.closing}, nil)
		}
	case *wire.Begin:
		l.channel = channel
		if l.mute != "begin" {
			l.send(channel, &wire.Begin{RemoteChannel: wire.Some(channel), IncomingWindow: 1000, OutgoingWindow: 1000}, nil)
		}
	case *wire.Attach:
		if l.mute != "begin" {
			l.attach(m)
		}
	case *wire.Transfer:
		l.id = m.DeliveryID.V
		request, err := wire.DecodeMessage(payload)
		if err != nil {
			panic(err)
		}
		l.requests, l.correlation = append(l.requests, request), request.Properties.CorrelationID
		if len(l.replies) == 0 {
			return
		}
		reply := l.replies[0]
		l.replies = l.replies[1:]
		if l.waiting = func() { reply(l) }; l.credit {
			l.waiting()
		}
	case *wire.Flow:
		if m.Handle.OK && m.Handle.V == l.sender && !l.credit {
			if l.credit = true; l.waiting != nil {
				l.waiting()
			}
		}
	case *wire.Disposition:
		if _, ok := m.State.(*wire.Accepted); ok {
			l.accepted++
		}
	case *wire.Detach:
		if !l.detached[m.Handle] {
			l.send(channel, &wire.Detach{Handle: m.Handle, Closed: true}, nil)
		}
	case *wire.End:
		if !l.over {
			l.send(channel, &wire.End{}, nil)
		}
	case *wire.Close:
		l.send(0, &wire.Close{}, nil)
		l.cut = true
	}
}

func (l *line) attach(m *wire.Attach) {
	l.attaches = append(l.attaches, m)
	if l.mute == "attach" {
		return
	}
	answer := &wire.Attach{Name: m.Name, Handle: m.Handle, Role: !m.Role, Source: m.Source, Target: m.Target}
	if l.refusal != nil {
		if m.Role == wire.RoleSender {
			answer.Target = nil
		} else {
			answer.Source = nil
		}
	}
	if m.Role == wire.RoleReceiver {
		l.sender, answer.InitialDeliveryCount = m.Handle, wire.Some(uint32(0))
	}
	l.send(l.channel, answer, nil)
	switch {
	case l.refusal != nil:
		l.send(l.channel, &wire.Detach{Handle: m.Handle, Closed: true, Error: l.refusal}, nil)
	case m.Role == wire.RoleSender && !l.noCredit:
		l.client = m.Handle
		l.send(l.channel, &wire.Flow{NextIncomingID: wire.Some(uint32(0)), IncomingWindow: 1000, OutgoingWindow: 1000,
			Handle: wire.Some(m.Handle), DeliveryCount: wire.Some(uint32(0)), LinkCredit: wire.Some(uint32(50))}, nil)
	}
}

func (l *line) write(b []byte) { _, _ = l.conn.Write(b) }

func (l *line) send(channel uint16, p wire.Performative, payload []byte) {
	b, err := wire.AppendFrame(nil, channel, p, payload)
	if err != nil {
		panic(err)
	}
	switch m := p.(type) { // what the peer has ended is not ended again
	case *wire.Detach:
		l.detached[m.Handle] = true
	case *wire.End:
		l.over = true
	}
	l.write(b)
}

// settle sends the outcome of the request.
func (l *line) settle(state wire.DeliveryState) {
	l.send(l.channel, &wire.Disposition{Role: wire.RoleReceiver, First: l.id, Settled: true, State: state}, nil)
}

// accept accepts the request.
func (l *line) accept() { l.settle(&wire.Accepted{}) }

// message sends a message in frames of 2 KB.
func (l *line) message(settled bool, payload []byte) {
	tag := binary.BigEndian.AppendUint32(nil, l.sent)
	t := &wire.Transfer{Handle: l.sender, DeliveryID: wire.Some(l.sent), DeliveryTag: tag,
		MessageFormat: wire.Some(uint32(0)), Settled: wire.Some(settled)}
	l.sent++
	for part := range slices.Chunk(payload, 2048) {
		payload = payload[len(part):]
		t.More = len(payload) > 0
		l.send(l.channel, t, part)
		t = &wire.Transfer{Handle: l.sender}
	}
}

// answer sends an answer to the request.
func (l *line) answer(body string, properties wire.Map) { l.answerTo(l.correlation, body, properties) }

func (l *line) answerTo(correlation any, body string, properties wire.Map) {
	m := &wire.Message{ApplicationProperties: properties, Data: [][]byte{[]byte(body)}}
	if correlation != nil {
		m.Properties = &wire.Properties{CorrelationID: correlation}
	}
	l.message(false, encoded(m))
}

func encoded(m *wire.Message) []byte {
	b, err := wire.AppendMessage(nil, m)
	if err != nil {
		panic(err)
	}
	return b
}

// done accepts a request and answers with the assignment.
func done(l *line) {
	l.accept()
	l.answer(assigned, nil)
}

func identity(t testing.TB) *provisioning.Identity {
	sign, err := transport.SharedKey(ownKey)
	require.NoError(t, err)
	return &provisioning.Identity{Endpoint: "dps.example.test", IDScope: "0ne00ABCDEF", RegistrationID: "reg:0001",
		Sign: sign}
}

// with runs f in fake time against a peer.
func with(t *testing.T, p *peer, f func(t *testing.T, o *netopt.Options)) {
	t.Helper()
	testkit.In2030(t, func(t *testing.T) {
		before := testkit.Goroutines()
		p.network = memconn.NewNetwork("dps.example.test:5672")
		served := make(chan struct{})
		go func() {
			p.serve()
			close(served)
		}()
		f(t, &netopt.Options{Plaintext: true, Dial: p.network.DialContext})
		_ = p.network.Close()
		<-served
		synctest.Wait()
		require.Equal(t, before, testkit.Goroutines())
	})
}

func register(t *testing.T, o *netopt.Options, opt *provisioning.Options) (*provisioning.Assignment, error) {
	t.Helper()
	c, err := provisioning.New(identity(t), dpsamqp.New(o), opt)
	require.NoError(t, err)
	return c.Register(t.Context())
}

// dialTo returns a dial function for one connection.
func dialTo(c net.Conn) netopt.DialFunc {
	return func(context.Context, string, string) (net.Conn, error) { return c, nil }
}
