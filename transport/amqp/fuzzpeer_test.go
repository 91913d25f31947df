package amqp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A fuzzPeer is a peer that opens a connection as a broker does, and then sends frames, some of
// them mutated. It generates them when it is read from, until the device ends the connection.
type fuzzPeer struct {
	random func() uint32
	left   int    // frames that are still to be sent
	said   int    // frames that were sent
	script []byte // their bytes

	mu            sync.Mutex // guards the fields below
	more          sync.Cond
	in            []byte // bytes that the device wrote, not a whole frame yet
	out           []byte // bytes that the device reads first
	talks         bool   // the opening is over
	closed        bool
	done          chan struct{} // closed when all frames were sent
	channel       uint16        // of the latest session
	links         []uint32      // handles of the device's links
	receives      uint32        // that of the one on which the device receives
	partial       bool          // a delivery on it has begun
	next          uint32        // number of the next delivery on it
	credit        uint32        // the delivery-count at which no credit is left
	sent          uint32        // transfers that the device sent
	answer        bool          // messages get valid answers
	mutateOpening bool          // some of the opening frames are mutated
}

func newFuzzPeer(random func() uint32, frames int) *fuzzPeer {
	p := &fuzzPeer{random: random, left: frames, done: make(chan struct{}), answer: true}
	p.mutateOpening = p.n(10) == 0
	p.more.L = &p.mu
	return p
}

func (p *fuzzPeer) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.out) == 0 {
		switch {
		case p.closed:
			return 0, net.ErrClosed
		case p.talks && p.left > 0:
			if p.left--; p.left == 0 {
				close(p.done)
			}
			p.say(p.mutate(p.valid()))
		default:
			p.more.Wait()
		}
	}
	n := copy(b, p.out)
	p.out = p.out[n:]
	return n, nil
}

// say sends a frame and records it.
func (p *fuzzPeer) say(b []byte) {
	p.said++
	p.script = append(p.script, b...)
	p.out = append(p.out, b...)
}

func (p *fuzzPeer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, net.ErrClosed
	}
	p.in = append(p.in, b...)
	for p.receive() {
	}
	p.more.Broadcast()
	return len(b), nil
}

func (p *fuzzPeer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.more.Broadcast()
	return nil
}

func (p *fuzzPeer) LocalAddr() net.Addr { return nil }

func (p *fuzzPeer) RemoteAddr() net.Addr { return nil }

func (p *fuzzPeer) SetDeadline(time.Time) error { return nil }

func (p *fuzzPeer) SetReadDeadline(time.Time) error { return nil }

func (p *fuzzPeer) SetWriteDeadline(time.Time) error { return nil }

// receive answers the next frame or header that the device wrote, if it is whole.
func (p *fuzzPeer) receive() bool {
	if len(p.in) >= 8 && string(p.in[:4]) == "AMQP" {
		p.out = append(p.out, p.in[:8]...)
		if p.in[4] == wire.ProtocolSASL {
			p.reply(0, &wire.Mechanisms{Mechanisms: []wire.Symbol{"ANONYMOUS"}})
		}
		p.in = p.in[8:]
		return true
	}
	f, n, err := wire.Split(p.in, 1<<20)
	if err != nil {
		panic(err)
	}
	if n == 0 {
		return false
	}
	p.in = p.in[n:]
	if len(f.Body) == 0 {
		return true
	}
	got, _, err := f.Performative()
	if err != nil {
		panic(err)
	}
	some := wire.Some[uint32]
	switch m := got.(type) {
	case *wire.Init:
		p.reply(0, &wire.Outcome{})
	case *wire.Open:
		p.reply(0, &wire.Open{ContainerID: "fuzz-peer", MaxFrameSize: 4096, ChannelMax: 10})
	case *wire.Begin:
		p.channel = f.Channel
		p.reply(f.Channel, &wire.Begin{RemoteChannel: wire.Some(f.Channel), IncomingWindow: 1000, OutgoingWindow: 1000,
			HandleMax: 10})
	case *wire.Attach:
		p.links = append(p.links, m.Handle)
		if m.Role == wire.RoleReceiver {
			p.receives = m.Handle
		}
		p.reply(f.Channel, &wire.Attach{Name: m.Name, Handle: m.Handle, Role: !m.Role, RcvSettleMode: uint8(p.n(2)),
			Source: m.Source, Target: m.Target})
		if m.Role == wire.RoleSender {
			p.reply(f.Channel, &wire.Flow{NextIncomingID: some(0), IncomingWindow: 1000, OutgoingWindow: 1000,
				Handle: some(m.Handle), DeliveryCount: some(0), LinkCredit: some(1000)})
		}
	case *wire.Flow:
		if m.Handle.OK && m.Handle.V == p.receives {
			p.credit = m.DeliveryCount.V + m.LinkCredit.V
		}
	case *wire.Transfer:
		p.sent++
		if p.answer && m.DeliveryID.OK {
			p.reply(f.Channel, &wire.Disposition{Role: wire.RoleReceiver, First: m.DeliveryID.V, Settled: true,
				State: &wire.Accepted{}})
		}
	case *wire.Detach:
		p.reply(f.Channel, &wire.Detach{Handle: m.Handle, Closed: true})
	case *wire.End:
		p.reply(f.Channel, &wire.End{})
	}
	return true
}

// deliver sends a message in one transfer, the first one of a link with the handle 0.
func (p *fuzzPeer) deliver(message []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, err := wire.AppendFrame(nil, p.channel, &wire.Transfer{DeliveryID: wire.Some(uint32(0)), DeliveryTag: []byte{1},
		MessageFormat: wire.Some(uint32(0))}, message)
	if err != nil {
		panic(err)
	}
	p.out = append(p.out, b...)
	p.more.Broadcast()
}

// reply sends a frame.
func (p *fuzzPeer) reply(channel uint16, m wire.Performative) {
	b, err := wire.AppendFrame(nil, channel, m, nil)
	if err != nil {
		panic(err)
	}
	if p.mutateOpening && !p.talks && p.n(4) == 0 {
		p.say(p.mutate(b))
		return
	}
	p.out = append(p.out, b...)
}

func (p *fuzzPeer) n(most int) int { return int(p.random() % uint32(most)) }

// fuzzSink is a sink that settles some of its deliveries.
type fuzzSink struct {
	mu      sync.Mutex
	session transport.Session
	results chan uint16
	replies chan transport.Reply
}

func (a *fuzzSink) Done(tag uint16, _ error) { a.results <- tag }

func (a *fuzzSink) Reply(_ uint32, r transport.Reply) { a.replies <- r }

func (a *fuzzSink) Deliver(d *transport.Delivery) bool {
	if len(d.Ref) == 0 || d.Ref[len(d.Ref)-1]%3 == 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session.Do(&transport.Request{Op: transport.OpSettle, Ref: slices.Clone(d.Ref),
		Outcome: transport.Outcome(d.Ref[len(d.Ref)-1] % 3)})
	return true
}

// fuzzPeerLimit is how long one dialogue may take. fuzzPeerMemory is what it may allocate besides 1
// KB for each byte that the peer sent.
const (
	fuzzPeerLimit  = 30 * time.Second
	fuzzPeerMemory = 8 << 20
	// openingLimit is how long a device waits for the answer to a mutated opening frame.
	openingLimit = 100 * time.Millisecond
)

// play runs a device against a fuzzPeer. what names the dialogue.
func play(t testing.TB, p *fuzzPeer, what func() string) {
	late := time.AfterFunc(fuzzPeerLimit, func() { panic("the device spins or hangs: " + what()) })
	defer late.Stop()
	began := allocated()
	a := &fuzzSink{results: make(chan uint16, 64), replies: make(chan transport.Reply, 64)}
	limit := 20 * time.Second
	if p.mutateOpening {
		limit = openingLimit
	}
	tr := New(&Options{
		Network: netopt.Options{Plaintext: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			return p, nil
		}}, Auth: AuthAnonymous, OperationTimeout: limit, Addresses: &Addresses{Telemetry: "out", Commands: "in"},
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dial, dialed := ctx, context.CancelFunc(func() {})
	if p.mutateOpening {
		dial, dialed = context.WithTimeout(ctx, openingLimit)
	}
	made, err := tr.Dial(dial, &transport.Config{Creds: &transport.Credentials{Host: "h", DeviceID: "d"}, Window: 16,
		Queue: 8, Sink: a})
	dialed()
	if err != nil {
		if !p.mutateOpening {
			t.Fatalf("dial: %v", err)
		}
		return
	}
	s := made.(*session)
	a.session = s
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	m := &transport.Message{Body: []byte("x")}
	s.Send([]transport.Item{{Tag: 0, Msg: m}})
	s.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
	for sent, subscribed := false, false; !sent || !subscribed; {
		select {
		case <-a.results:
			sent = true
		case r := <-a.replies:
			if subscribed = true; r.Err != nil && !p.mutateOpening {
				t.Fatalf("%v: %s", r.Err, what())
			}
		case err := <-over:
			if !p.mutateOpening {
				t.Fatalf("%v: %s", err, what())
			}
			return
		case <-time.After(openingLimit):
			if !p.mutateOpening {
				continue // the machine is busy
			}
			cancel()
			<-over
			return
		}
	}
	p.mu.Lock()
	p.talks, p.answer = true, false
	p.mu.Unlock()
	batch := make([]transport.Item, 8)
	for i := range batch {
		batch[i] = transport.Item{Tag: uint16(i), Msg: m}
	}
	s.Send(batch) // wakes the peer, too
	running := true
	for running {
		select {
		case tag := <-a.results:
			s.Send([]transport.Item{{Tag: tag, Msg: m}})
		case err = <-over:
			running = false
		case <-p.done:
			cancel()
			for running {
				select {
				case <-a.results:
				case err = <-over:
					running = false
				}
			}
		}
	}
	if _, bad := errors.AsType[*amqpclient.Violation](err); ctx.Err() == nil && !bad {
		if _, said := errors.AsType[*ConditionError](err); !said {
			t.Errorf("the session ended without a word of the peer or a violation: %v; %s", err, what())
		}
	}
	if used := allocated() - began; used > fuzzPeerMemory+1024*uint64(len(p.script)) {
		t.Errorf("%d bytes were allocated for %d that were said: %s", used, len(p.script), what())
	}
}

// allocated returns how many bytes the process has allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// FuzzPair runs a device against a peer that sends mutated frames. The input is
// the source of random numbers.
func FuzzPair(f *testing.F) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		b := make([]byte, 2000)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		const perFrame = 40
		p := newFuzzPeer(func() uint32 {
			if len(b) < 2 {
				return 7
			}
			n := uint32(b[0]) | uint32(b[1])<<8
			b = b[1:]
			return n * 2654435761 >> 8
		}, 1+min(len(b)/perFrame, 100))
		play(t, p, func() string { return fmt.Sprintf("said %x", p.script) })
	})
}

// TestMutatedFramesDoNoHarm sends a device HUBLINE_PAIR_FRAMES mutated frames: it neither panics
// nor spins nor grows, and its end waits for all its goroutines.
func TestMutatedFramesDoNoHarm(t *testing.T) {
	total := 20_000
	if text := os.Getenv("HUBLINE_PAIR_FRAMES"); text != "" {
		var err error
		if total, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(1)
	if text := os.Getenv("HUBLINE_PAIR_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	said, dialogues := 0, 0
	for ; said < total && !t.Failed(); seed++ {
		p := newFuzzPeer(rand.New(rand.NewPCG(seed, 0)).Uint32, 200)
		play(t, p, func() string { return fmt.Sprintf("HUBLINE_PAIR_SEED=%d, said %x", seed, p.script) })
		said, dialogues = said+p.said, dialogues+1
	}
	t.Logf("%d frames in %d dialogues", said, dialogues)
	if said < 8*dialogues && !t.Failed() {
		t.Error("the dialogues are too short")
	}
}
