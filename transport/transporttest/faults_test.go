package transporttest_test

import (
	"context"
	"errors"
	"slices"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/transporttest"
)

// A fault is a way in which a transport or its hub violates the contract.
type fault struct {
	check  string // that must find it
	broker bool   // at a broker, not at a hub
	plant  func(f *faulty)
}

func refused(k transport.Kind, text string) error {
	return &transport.Error{Kind: k, Scope: transport.ScopeOperation, Op: transport.OpSend, Proto: "mqtt",
		Err: errors.New(text)}
}

// onFailedDial changes the error of a failed dial.
func onFailedDial(change func(e *transport.Error)) func(f *faulty) {
	return func(f *faulty) {
		f.failed = func(e *transport.Error) error {
			change(e)
			return e
		}
	}
}

// onLoss changes the error of a session that was lost.
func onLoss(change func(s *session, e *transport.Error)) func(f *faulty) {
	return func(f *faulty) {
		f.run = func(s *session, ctx context.Context) error {
			err := s.Session.Run(ctx)
			if e := transport.Find(err); e != nil && ctx.Err() == nil {
				own := *e
				change(s, &own)
				return &own
			}
			return err
		}
	}
}

// slowEnd makes Run take 3 s after its context.
func slowEnd(when func(f *faulty) bool) func(f *faulty) {
	return func(f *faulty) {
		f.run = func(s *session, ctx context.Context) error {
			err := s.Session.Run(ctx)
			if ctx.Err() != nil && when(f) {
				time.Sleep(3 * time.Second)
			}
			return err
		}
	}
}

// returning makes Run do something and return an error of its own.
func returning(do func(s *session), err error) func(f *faulty) {
	return func(f *faulty) {
		f.run = func(s *session, ctx context.Context) error {
			_ = s.Session.Run(ctx)
			do(s)
			return err
		}
	}
}

// onMessages changes what is sent.
func onMessages(change func(m *transport.Message)) func(f *faulty) {
	return func(f *faulty) {
		f.send = func(s *session, batch []transport.Item) {
			batch = slices.Clone(batch)
			for i := range batch {
				if batch[i].Msg != nil {
					own := *batch[i].Msg
					change(&own)
					batch[i].Msg = &own
				}
			}
			s.Session.Send(batch)
		}
	}
}

// without leaves some messages out.
func without(out func(it transport.Item) bool) func(f *faulty) {
	return func(f *faulty) {
		f.send = func(s *session, batch []transport.Item) {
			s.Session.Send(slices.DeleteFunc(slices.Clone(batch), out))
		}
	}
}

// onReceived changes what arrived.
func onReceived(change func(r *transporttest.Received)) func(f *faulty) {
	return func(f *faulty) {
		f.received = func(all []transporttest.Received) []transporttest.Received {
			for i := range all {
				change(&all[i])
			}
			return all
		}
	}
}

func onDone(done func(s *session, tag uint16, err error)) func(f *faulty) {
	return func(f *faulty) { f.done = done }
}

func onReply(reply func(s *session, id uint32, r transport.Reply)) func(f *faulty) {
	return func(f *faulty) { f.reply = reply }
}

func replyTwice(s *session, id uint32, r transport.Reply) {
	s.sink.Reply(id, r)
	s.sink.Reply(id, r)
}

// onDo changes requests; false leaves one out.
func onDo(change func(s *session, r *transport.Request) bool) func(f *faulty) {
	return func(f *faulty) {
		f.do = func(s *session, r *transport.Request) {
			if own := *r; change(s, &own) {
				s.Session.Do(&own)
			}
		}
	}
}

// onDelivery changes deliveries of one kind.
func onDelivery(kind transport.Features, change func(s *session, d *transport.Delivery)) func(f *faulty) {
	return func(f *faulty) {
		f.deliver = func(s *session, d *transport.Delivery) bool {
			own := *d
			if d.Kind == kind {
				change(s, &own)
			}
			return s.sink.Deliver(&own)
		}
	}
}

func accept(s *session, ref []byte) {
	s.Session.Do(&transport.Request{Op: transport.OpSettle, Ref: ref, Outcome: transport.OutcomeAccept})
}

const (
	wrongCredentials = "Dial fails with Unauthorized for wrong credentials"
	makesASession    = "Dial makes a session that the hub accepts"
	oneDone          = "each message is answered by one Done"
	tooLarge         = "a message that is too large fails alone"
	withATopic       = "a message with a topic goes there, or fails alone where there are none"
	withoutAPlace    = "a message with a system property that has no place fails alone"
	atMostOnce       = "a message to be sent at most once does not wait for an answer"
	oneLoss          = "the loss of the connection ends Run with one retryable error"
	whenSilent       = "Run ends within a second after its context when the network is silent"
	afterTheEnd      = "Send and Do after Run's end do nothing"
	lacking          = "operations that the protocol lacks are replied to with Unsupported"
	subscribe        = "OpSubscribe is replied to for each feature"
	inOrder          = "deliveries come in order and accepting removes them"
	comesAgain       = "a delivery that was released comes again"
	readAndChanged   = "the twin is read and its reported part is changed"
	badPatch         = "a patch that the hub does not take is refused"
	manyRequests     = "each of many requests at a time is replied to once"
	changes          = "changes of desired properties come in order"
	calls            = "method calls are delivered and answered in any order"
)

var faults = map[string]fault{
	"failed dials use something up": {check: "Dial can fail many times and leaves nothing",
		plant: func(f *faulty) {
			n := 0
			f.failed = func(e *transport.Error) error {
				if n++; n > 5 {
					e.Kind = transport.Unavailable
				}
				return e
			}
		}},
	"a failed dial leaves a goroutine": {check: wrongCredentials,
		plant: onFailedDial(func(*transport.Error) { go time.Sleep(time.Hour) })},
	"a failed dial returns another error type": {check: wrongCredentials, plant: func(f *faulty) {
		f.failed = func(*transport.Error) error { return errors.New("failed") }
	}},
	"a failed dial has the wrong scope": {check: "Dial fails with Network when the hub is unreachable",
		plant: onFailedDial(func(e *transport.Error) { e.Scope = transport.ScopeOperation })},
	"a failed dial is always a network failure": {check: wrongCredentials,
		plant: onFailedDial(func(e *transport.Error) { e.Kind = transport.Network })},
	"a failed dial is always unauthorized": {check: "Dial fails with Unavailable when the hub says so",
		plant: onFailedDial(func(e *transport.Error) { e.Kind = transport.Unauthorized })},
	"the token source's error is lost": {check: "Dial fails with the token source's error",
		plant: onFailedDial(func(e *transport.Error) { e.Err = errors.New("no token") })},
	"Dial takes all credentials": {check: wrongCredentials, plant: func(f *faulty) {
		f.dial = func(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
			cfg.Creds = f.creds
			return f.right.Dial(ctx, cfg)
		}
	}},
	"Dial ends late": {check: "Dial ends soon after its context", plant: func(f *faulty) {
		f.dial = func(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
			s, err := f.right.Dial(ctx, cfg)
			if ctx.Err() != nil {
				time.Sleep(time.Minute)
			}
			return s, err
		}
	}},
	"Dial does not look at its context": {check: "Dial fails when its context ended before",
		plant: func(f *faulty) {
			f.dial = func(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
				return f.right.Dial(context.WithoutCancel(ctx), cfg)
			}
		}},
	"errors show the token": {check: "errors of Dial do not show secrets", plant: func(f *faulty) {
		f.dial = func(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
			s, err := f.right.Dial(ctx, cfg)
			if e := transport.Find(err); e != nil {
				token, _ := cfg.Creds.NewToken(ctx)
				e.Err = errors.New(token.Text.Reveal())
			}
			return s, err
		}
	}},
	"there is no session after a loss": {check: "a new session works after a loss",
		plant: func(f *faulty) {
			f.dial = func(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
				if f.cut.Load() {
					return nil, refused(transport.Network, "used up")
				}
				return f.right.Dial(ctx, cfg)
			}
		}},

	"Done comes twice": {check: oneDone, plant: onDone(func(s *session, tag uint16, err error) {
		s.sink.Done(tag, err)
		s.sink.Done(tag, err)
	})},
	"every tenth message is lost": {check: oneDone,
		plant: without(func(it transport.Item) bool { return it.Tag%10 == 9 })},
	"messages arrive twice": {check: oneDone, plant: func(f *faulty) {
		f.received = func(all []transporttest.Received) []transporttest.Received { return append(all, all...) }
	}},
	"a batch arrives in reverse": {check: "messages arrive in the order of Send",
		plant: func(f *faulty) {
			f.send = func(s *session, batch []transport.Item) {
				batch = slices.Clone(batch)
				slices.Reverse(batch)
				s.Session.Send(batch)
			}
		}},
	"properties are lost": {check: "messages arrive as they were sent",
		plant: onMessages(func(m *transport.Message) { m.Properties = nil })},
	"the batch is kept": {check: "a batch belongs to the caller again after Send",
		plant: func(f *faulty) {
			f.send = func(s *session, batch []transport.Item) {
				time.AfterFunc(time.Millisecond, func() {
					s.Session.Send(slices.DeleteFunc(slices.Clone(batch), func(it transport.Item) bool { return it.Msg == nil }))
				})
			}
		}},
	"the memory of messages is read after Send": {check: "messages arrive as they were sent",
		plant: func(f *faulty) {
			f.send = func(s *session, batch []transport.Item) {
				batch = slices.Clone(batch)
				for i := range batch {
					own := *batch[i].Msg
					batch[i].Msg = &own
				}
				time.AfterFunc(time.Millisecond, func() {
					synctest.Wait() // the suite waits for answers
					s.Session.Send(batch)
				})
			}
		}},
	"a tag works once": {check: "a tag can be used again after its Done",
		plant: onDone(func(s *session, tag uint16, err error) {
			if !s.used[tag] {
				s.used[tag] = true
				s.sink.Done(tag, err)
			}
		})},
	"Send waits for answers": {check: "Send does not wait for answers while the window fills",
		plant: func(f *faulty) {
			f.send = func(s *session, batch []transport.Item) {
				s.Session.Send(batch)
				time.Sleep(time.Second)
			}
		}},
	"messages are done as soon as they are sent": {check: "a message is not done before the hub answered",
		plant: func(f *faulty) {
			f.done = func(*session, uint16, error) {}
			f.send = func(s *session, batch []transport.Item) {
				s.Session.Send(batch)
				for _, it := range batch {
					s.sink.Done(it.Tag, nil)
				}
			}
		}},
	"what is sent again is not marked": {check: "a message handed over again arrives, marked if the protocol can",
		plant: onReceived(func(r *transporttest.Received) { r.Resent = false })},
	"too large goes unanswered": {check: tooLarge,
		plant: without(func(it transport.Item) bool { return it.Msg.Size() > transport.MaxMessageSize })},
	"too large has the wrong scope": {check: tooLarge,
		plant: onDone(func(s *session, tag uint16, err error) {
			if e := transport.Find(err); e != nil {
				e.Scope = transport.ScopeConnection
			}
			s.sink.Done(tag, err)
		})},
	"topics are lost": {check: withATopic, broker: true,
		plant: onMessages(func(m *transport.Message) { m.Topic = "" })},
	"RETAIN is lost": {check: withATopic, broker: true,
		plant: onMessages(func(m *transport.Message) { m.Retain = false })},
	"lacking topics are ignored": {check: withATopic,
		plant: onMessages(func(m *transport.Message) { m.Topic = "" })},
	"system properties are lost": {check: "system properties arrive as they were sent",
		plant: onMessages(func(m *transport.Message) { m.System = nil })},
	"a refusal does not name the field": {check: withoutAPlace, broker: true,
		plant: onDone(func(s *session, tag uint16, err error) {
			if err != nil {
				err = refused(transport.Unsupported, "a field")
			}
			s.sink.Done(tag, err)
		})},
	"fields without a place are ignored": {check: withoutAPlace, broker: true,
		plant: onMessages(func(m *transport.Message) { m.System, m.Output = nil, "" })},
	"QoS 0 becomes QoS 1": {check: atMostOnce, broker: true,
		plant: onReceived(func(r *transporttest.Received) { r.AtMostOnce = false })},
	"QoS 0 counts as acknowledged": {check: atMostOnce, broker: true,
		plant: onDone(func(s *session, tag uint16, err error) {
			if errors.Is(err, transport.ErrWritten) {
				err = nil
			}
			s.sink.Done(tag, err)
		})},
	"QoS 0 waits for an answer": {check: atMostOnce, broker: true, plant: func(f *faulty) {
		f.done = func(s *session, tag uint16, err error) {
			if !f.holding.Load() {
				s.sink.Done(tag, err)
			}
		}
	}},

	"a loss has the scope of an operation": {check: oneLoss,
		plant: onLoss(func(_ *session, e *transport.Error) { e.Scope = transport.ScopeOperation })},
	"a loss is another error type": {check: oneLoss,
		plant: returning(func(*session) {}, errors.New("lost"))},
	"a loss is terminal": {check: oneLoss,
		plant: onLoss(func(_ *session, e *transport.Error) {
			e.Kind, e.Err = transport.Protocol, errors.New("lost")
		})},
	"a loss is not noticed": {check: oneLoss,
		plant: onLoss(func(*session, *transport.Error) { time.Sleep(time.Hour) })},
	"a loss fails the messages in flight": {check: "messages in flight at a loss get no Done",
		plant: onLoss(func(s *session, _ *transport.Error) { s.sink.Done(0, refused(transport.Network, "lost")) })},
	"silence is not noticed": {check: "a network that falls silent ends Run",
		plant: onLoss(func(s *session, _ *transport.Error) {
			if s.f.silent.Load() {
				time.Sleep(10 * time.Hour)
			}
		})},
	"the disconnect takes long": {check: "Run ends within a second after its context when idle",
		plant: slowEnd(func(*faulty) bool { return true })},
	"the disconnect waits for answers": {check: "Run ends within a second after its context with messages in flight",
		plant: slowEnd(func(f *faulty) bool { return f.holding.Load() })},
	"the disconnect waits for the network": {check: whenSilent,
		plant: slowEnd(func(f *faulty) bool { return f.silent.Load() })},
	"a context that ended before is not seen": {check: "Run ends when its context ended before it began",
		plant: func(f *faulty) {
			f.run = func(s *session, ctx context.Context) error {
				if ctx.Err() != nil {
					time.Sleep(3 * time.Second)
				}
				return s.Session.Run(ctx)
			}
		}},
	"Run returns nil": {check: makesASession, plant: returning(func(*session) {}, nil)},
	"a goroutine is left behind": {check: makesASession,
		plant: returning(func(*session) { go time.Sleep(time.Hour) }, context.Canceled)},
	"a late goroutine calls the sink": {check: makesASession,
		plant: returning(func(s *session) { go s.sink.Done(0, nil) }, context.Canceled)},
	"Send works after the end": {check: afterTheEnd, plant: func(f *faulty) {
		f.send = func(s *session, batch []transport.Item) {
			s.Session.Send(batch)
			f.late.Store(s.ended.Load())
		}
		f.received = func(all []transporttest.Received) []transporttest.Received {
			if f.late.Load() {
				all = append(all, transporttest.Received{})
			}
			return all
		}
	}},
	"Do replies after the end": {check: afterTheEnd,
		plant: onDo(func(s *session, r *transport.Request) bool {
			if s.ended.Load() {
				s.sink.Reply(r.ID, transport.Reply{})
			}
			return true
		})},

	"lacking operations get no reply": {check: lacking, broker: true,
		plant: onReply(func(*session, uint32, transport.Reply) {})},
	"lacking operations succeed": {check: lacking, broker: true,
		plant: onReply(func(s *session, id uint32, _ transport.Reply) {
			s.sink.Reply(id, transport.Reply{Status: 200})
		})},
	"subscribing is not replied to": {check: subscribe,
		plant: onReply(func(*session, uint32, transport.Reply) {})},
	"subscribing is replied to twice": {check: subscribe, plant: onReply(replyTwice)},
	"deliveries come in reverse": {check: inOrder, plant: func(f *faulty) {
		held := ""
		f.toDevice = func(body string) { // two by two
			if held == "" {
				held = body
				return
			}
			f.Broker.Deliver(body)
			f.Broker.Deliver(held)
			held = ""
		}
	}},
	"deliveries are accepted at once": {check: inOrder,
		plant: onDelivery(transport.FeatureMessages, func(s *session, d *transport.Delivery) {
			accept(s, d.Ref)
		})},
	"accepting does nothing": {check: inOrder,
		plant: onDo(func(_ *session, r *transport.Request) bool { return r.Op != transport.OpSettle })},
	"every delivery is marked": {check: inOrder,
		plant: onDelivery(transport.FeatureMessages, func(_ *session, d *transport.Delivery) {
			d.Redelivered = true
		})},
	"redelivery is not marked": {check: comesAgain,
		plant: onDelivery(transport.FeatureMessages, func(_ *session, d *transport.Delivery) {
			d.Redelivered = false
		})},
	"releasing accepts": {check: comesAgain, plant: onDo(func(_ *session, r *transport.Request) bool {
		r.Outcome = transport.OutcomeAccept
		return true
	})},
	"what nobody took is accepted": {check: "a delivery that nobody took comes again",
		plant: func(f *faulty) {
			f.deliver = func(s *session, d *transport.Delivery) bool {
				if !s.sink.Deliver(d) {
					accept(s, d.Ref)
				}
				return true
			}
		}},
	"system properties of deliveries are lost": {check: "deliveries have their system properties",
		plant: onDelivery(transport.FeatureMessages, func(_ *session, d *transport.Delivery) {
			own := *d.Msg
			own.System, d.Msg = nil, &own
		})},

	"patches are lost": {check: readAndChanged,
		plant: onDo(func(s *session, r *transport.Request) bool {
			if r.Op == transport.OpTwinPatch {
				s.sink.Reply(r.ID, transport.Reply{Version: int64(r.ID)})
			}
			return r.Op != transport.OpTwinPatch
		})},
	"the version is lost": {check: readAndChanged,
		plant: onReply(func(s *session, id uint32, r transport.Reply) {
			r.Version = 0
			s.sink.Reply(id, r)
		})},
	"the expected version is lost": {check: badPatch,
		plant: onDo(func(_ *session, r *transport.Request) bool {
			r.Version = 0
			return true
		})},
	"refused patches have the wrong kind": {check: badPatch,
		plant: onReply(func(s *session, id uint32, r transport.Reply) {
			if r.Err != nil {
				r.Err = refused(transport.Unavailable, "refused")
			}
			s.sink.Reply(id, r)
		})},
	"every tenth request is not replied to": {check: manyRequests,
		plant: onReply(func(s *session, id uint32, r transport.Reply) {
			if id%10 != 9 {
				s.sink.Reply(id, r)
			}
		})},
	"requests are replied to twice": {check: manyRequests,
		plant: onReply(func(s *session, id uint32, r transport.Reply) {
			s.sink.Reply(id, r)
			if id != 1000 { // that of the subscription
				s.sink.Reply(id, r)
			}
		})},
	"versions of changes are lost": {check: changes,
		plant: onDelivery(transport.FeatureDesired, func(_ *session, d *transport.Delivery) {
			d.Version = 0
		})},
	"changes come twice": {check: changes,
		plant: onDelivery(transport.FeatureDesired, func(s *session, d *transport.Delivery) {
			s.sink.Deliver(d)
		})},
	"names of methods are lost": {check: calls,
		plant: onDelivery(transport.FeatureMethods, func(_ *session, d *transport.Delivery) {
			d.Name = nil
		})},
	"answers go to the first call": {check: calls, plant: func(f *faulty) {
		onDelivery(transport.FeatureMethods, func(s *session, d *transport.Delivery) {
			if s.first == nil {
				s.first = slices.Clone(d.Ref)
			}
		})(f)
		onDo(func(s *session, r *transport.Request) bool {
			if r.Op == transport.OpRespond {
				r.Ref = s.first
			}
			return true
		})(f)
	}},
	"late answers vanish": {check: "an answer after Run's end is replied to as lost",
		plant: onDo(func(s *session, r *transport.Request) bool { return r.Op != transport.OpRespond || !s.ended.Load() })},
}
