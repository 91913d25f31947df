package transporttest_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/transporttest"
)

// faulty is the MQTT transport with its hub, and a fault between them and the suite. The functions
// pass each call on; a fault replaces some of them.
type faulty struct {
	*hubfixture.Broker
	right transport.Transport
	creds *transport.Credentials

	cut, silent, holding atomic.Bool
	late                 atomic.Bool // Send was called after the end

	dial     func(ctx context.Context, cfg *transport.Config) (transport.Session, error)
	failed   func(e *transport.Error) error // the error of Dial
	run      func(s *session, ctx context.Context) error
	send     func(s *session, batch []transport.Item)
	do       func(s *session, r *transport.Request)
	done     func(s *session, tag uint16, err error)
	reply    func(s *session, id uint32, r transport.Reply)
	deliver  func(s *session, d *transport.Delivery) bool
	received func(all []transporttest.Received) []transporttest.Received
	toDevice func(body string)
}

// session is a session of the MQTT transport, and the sink in front of the suite's.
type session struct {
	transport.Session
	f     *faulty
	sink  transport.Sink
	ended atomic.Bool
	used  map[uint16]bool // tags
	first []byte          // the reference of the first method call
}

// newFaulty returns the transport without a fault, at a hub or at a broker.
func newFaulty(t testing.TB, broker bool) (*faulty, *transporttest.Pair) {
	o := &mqtt.Options{Network: netopt.Options{Plaintext: true}}
	f := &faulty{
		failed:   func(e *transport.Error) error { return e },
		run:      func(s *session, ctx context.Context) error { return s.Session.Run(ctx) },
		send:     func(s *session, batch []transport.Item) { s.Session.Send(batch) },
		do:       func(s *session, r *transport.Request) { s.Session.Do(r) },
		done:     func(s *session, tag uint16, err error) { s.sink.Done(tag, err) },
		reply:    func(s *session, id uint32, r transport.Reply) { s.sink.Reply(id, r) },
		deliver:  func(s *session, d *transport.Delivery) bool { return s.sink.Deliver(d) },
		received: func(all []transporttest.Received) []transporttest.Received { return all },
	}
	if broker {
		f.Broker = hubfixture.NewPlain(t, testbroker.BrokerOptions{}, false)
		o.Dialect, o.Protocol = hubfixture.Topics(false), mqtt.MQTT5(nil)
	} else {
		f.Broker = hubfixture.New(t)
	}
	o.Network.Dial = f.Dial(testbroker.PortMQTT)
	f.right = mqtt.New(o)
	f.dial, f.toDevice = f.right.Dial, f.Broker.Deliver
	p := f.Pair(t, faultyTransport{f})
	if !broker {
		p.Features |= hubfixture.Calls
	}
	p.Hub, f.creds = f, p.Creds
	return f, p
}

type faultyTransport struct{ *faulty }

func (f faultyTransport) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	s := &session{f: f.faulty, sink: cfg.Sink, used: map[uint16]bool{}}
	own := *cfg
	own.Sink = s
	var err error
	if s.Session, err = f.dial(ctx, &own); err == nil {
		return s, nil
	}
	e := *transport.Find(err)
	return nil, f.failed(&e)
}

func (s *session) Run(ctx context.Context) error {
	defer s.ended.Store(true)
	return s.f.run(s, ctx)
}

func (s *session) Send(batch []transport.Item)        { s.f.send(s, batch) }
func (s *session) Do(r *transport.Request)            { s.f.do(s, r) }
func (s *session) Done(tag uint16, err error)         { s.f.done(s, tag, err) }
func (s *session) Reply(id uint32, r transport.Reply) { s.f.reply(s, id, r) }
func (s *session) Deliver(d *transport.Delivery) bool { return s.f.deliver(s, d) }
func (f *faulty) Received() []transporttest.Received  { return f.received(f.Broker.Received()) }
func (f *faulty) Deliver(body string)                 { f.toDevice(body) }

func (f *faulty) HoldAnswers(on bool) {
	f.holding.Store(on)
	f.Broker.HoldAnswers(on)
}

func (f *faulty) Cut() {
	f.cut.Store(true)
	f.Broker.Cut()
}

func (f *faulty) Silence() {
	f.silent.Store(true)
	f.Broker.Silence()
}

// Messages that no subscription asks for, with and without a reference, are no fault.
func TestUnaskedMessagesPass(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
		f, p := newFaulty(t, false)
		f.deliver = func(s *session, d *transport.Delivery) bool {
			s.sink.Deliver(&transport.Delivery{Name: []byte("old"), Ref: []byte("1"), Msg: new(transport.Message)})
			s.sink.Deliver(&transport.Delivery{Name: []byte("old"), Msg: new(transport.Message)})
			return s.sink.Deliver(d)
		}
		return p
	})
}

// A check that finds a fault passes without it.
func TestTheSuiteFindsEachFault(t *testing.T) {
	type aim struct {
		check  string
		broker bool
	}
	aimed, sound := map[string]bool{}, map[aim]bool{}
	none := func(*faulty) {}
	for name, one := range faults {
		aimed[one.check] = true
		examine := func(plant func(f *faulty)) []string {
			return transporttest.Examine(t, one.check, func(t testing.TB) *transporttest.Pair {
				f, p := newFaulty(t, one.broker)
				plant(f)
				return p
			})
		}
		t.Run(name, func(t *testing.T) {
			if len(examine(one.plant)) == 0 {
				t.Errorf("%q passed", one.check)
			}
			if at := (aim{one.check, one.broker}); !sound[at] {
				sound[at] = true
				if failures := examine(none); len(failures) > 0 {
					t.Errorf("%q fails without the fault: %q", one.check, failures)
				}
			}
		})
	}
	for _, check := range transporttest.Checks() {
		if !aimed[check] {
			t.Errorf("no fault is aimed at %q", check)
		}
	}
}
