package amqpclient

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// After a refused attach only a detach is allowed.
func TestARefusedLinkIsDetached(t *testing.T) {
	attach := func(r *rig) chan error {
		r.refuse = true
		refused := make(chan error, 1)
		go func() {
			_, err := r.s.NewReceiver(r.t.Context(), &ReceiverOptions{LinkOptions: LinkOptions{Name: "no"}})
			refused <- err
		}()
		synctest.Wait()
		return refused
	}
	late := delivery(0, false)
	late.Handle = 12
	for name, p := range map[string]wire.Performative{
		"flow": &wire.Flow{Handle: wire.Some(uint32(12))}, "transfer": late,
	} {
		t.Run(name, func(t *testing.T) {
			rigged(t, func(r *rig) {
				refused := attach(r)
				r.refuses(encode(t, 1, p, nil), "handle is 12, that of a link")
				require.Error(t, <-refused)
			})
		})
	}
	rigged(t, func(r *rig) {
		refused := attach(r)
		r.tell(&wire.Detach{Handle: 12, Closed: true, Error: wire.Errorf(wire.NotFound, "x")})
		require.Equal(t, &ConditionError{What: "link", Condition: "amqp:not-found", Description: "x"}, <-refused)
		r.refuses(encode(t, 1, &wire.Detach{Handle: 12, Closed: true}, nil),
			"detach.handle is 12, to which no link is attached")
	})
}

// A detach is answered in kind, and its link is gone; another one can be attached.
func TestADetachIsAnsweredInKind(t *testing.T) {
	for _, closed := range []bool{true, false} {
		rigged(t, func(r *rig) {
			r.tell(&wire.Detach{Handle: 10, Closed: closed, Error: wire.Errorf(wire.DetachForced, "x")})
			require.Equal(t, []wire.Performative{&wire.Detach{Handle: 0, Closed: closed}}, r.seen)
			require.Equal(t, []error{&ConditionError{What: "link", Condition: "amqp:link:detach-forced", Description: "x"}},
				r.lost)
			require.Equal(t, Gone, r.out.Send(0, r, []byte("x")))
			_, err := r.s.NewSender(r.t.Context(), &SenderOptions{})
			require.NoError(t, err)
		})
	}
}

// A link whose attach is answered too late is detached then; so is a session ended.
func TestWhatIsAnsweredTooLateIsGivenUp(t *testing.T) {
	rigged(t, func(r *rig) {
		_, err := r.s.NewSender(gone, &SenderOptions{LinkOptions: LinkOptions{Detached: func(error) { t.Fail() }}})
		require.Error(t, err)
		s, err := r.c.Begin(t.Context())
		require.NoError(t, err)
		require.Error(t, s.Begun(gone))
		s.End(gone)
		synctest.Wait()
		require.Contains(t, r.seen, wire.Performative(&wire.Detach{Handle: 2, Closed: true}))
		require.Contains(t, r.seen, wire.Performative(&wire.End{}))
	})
}

// Without a count or a credit the link keeps its credit.
func TestCredit(t *testing.T) {
	rigged(t, func(r *rig) {
		require.Equal(t, NoCredit, r.out.Send(0, r, []byte("x")))
		r.grant(0, 9)
		require.Equal(t, 1, r.credit)
		r.send(4)
		r.write(raw(t, codeFlow, uint32(4), uint32(5000), uint32(0), uint32(0), uint32(10)))
		synctest.Wait()
		r.send(5)
		require.Equal(t, NoCredit, r.out.Send(0, r, []byte("x")))
		r.grant(1, 2) // less than what was used already
		require.Equal(t, NoCredit, r.out.Send(0, r, []byte("x")))
		r.tell(&wire.Flow{NextIncomingID: wire.Some(uint32(9)), IncomingWindow: 5000, Handle: wire.Some(uint32(10)),
			DeliveryCount: wire.Some(uint32(9)), LinkCredit: wire.Some(uint32(3)), Drain: true})
		require.Equal(t, NoCredit, r.out.Send(0, r, []byte("x")), "the peer drained it")
		f := r.seen[len(r.seen)-1].(*wire.Flow)
		require.Equal(t, []wire.Opt[uint32]{wire.Some(uint32(12)), wire.Some(uint32(0))},
			[]wire.Opt[uint32]{f.DeliveryCount, f.LinkCredit})
	})
}

// A peer that drains a link gets the messages that wait, before the flow.
func TestWaitingMessagesUseDrainedCredit(t *testing.T) {
	rigged(t, func(r *rig) {
		var out *Sender
		resent := Gone
		out, err := r.s.NewSender(r.t.Context(), &SenderOptions{Credited: func() { resent = out.Send(0, r, []byte("x")) }})
		require.NoError(r.t, err)
		require.Equal(r.t, NoCredit, out.Send(0, r, []byte("x")))
		r.seen = nil
		r.tell(&wire.Flow{NextIncomingID: wire.Some(uint32(0)), IncomingWindow: 5000, Handle: wire.Some(uint32(12)),
			DeliveryCount: wire.Some(uint32(0)), LinkCredit: wire.Some(uint32(3)), Drain: true})
		require.Equal(r.t, NotBlocked, resent)
		require.Len(r.t, r.seen, 2)
		require.IsType(r.t, new(wire.Transfer), r.seen[0])
		f := r.seen[1].(*wire.Flow)
		require.Equal(r.t, []wire.Opt[uint32]{wire.Some(uint32(3)), wire.Some(uint32(0))},
			[]wire.Opt[uint32]{f.DeliveryCount, f.LinkCredit})
		require.Equal(r.t, NoCredit, out.Send(0, r, []byte("x")))
	})
}

// A window that ends before the transfers that were sent is closed. Without next-incoming-id the
// peer opens it as it receives.
func TestTheWindowOfTheSession(t *testing.T) {
	rigged(t, func(r *rig) {
		r.grant(0, 1000)
		r.send(10)
		for _, c := range []struct{ next, window, want uint32 }{
			{10, 0, 0}, {10, math.MaxUint32, math.MaxUint32}, {5, 5, 0}, {5, 6, 1}, {0, 9, 0}, {0, 10, 0},
			{math.MaxUint32, 10, 0}, {math.MaxUint32, 12, 1}, {1 << 30, 7, 7},
		} {
			r.tell(&wire.Flow{NextIncomingID: wire.Some(c.next), IncomingWindow: c.window})
			require.Equal(t, c.want, r.s.window, "%+v", c)
		}
		r.tell(&wire.Flow{NextIncomingID: wire.Some(uint32(10)), IncomingWindow: 0})
		require.Equal(t, NoWindow, r.out.Send(0, r, []byte("x")))
		before := r.credit
		r.tell(&wire.Flow{IncomingWindow: 2})
		require.Equal(t, before+1, r.credit)
		require.Equal(t, uint32(2), r.s.window)

		// the frames of one message wait for it
		r.bytes = 0
		require.Equal(t, NotBlocked, r.out.Send(0, r, make([]byte, 5*MaxFrame)))
		r.c.Flush()
		synctest.Wait()
		require.Less(t, r.bytes, 2*MaxFrame)
		require.Equal(t, NoWindow, r.out.Send(0, r, []byte("x")))
		r.tell(&wire.Flow{IncomingWindow: 100})
		require.Equal(t, 5*MaxFrame, r.bytes)
		r.send(1)
	})
}

// A message that is not sent whole can be refused, but not accepted.
func TestNoPartOfAMessageIsAccepted(t *testing.T) {
	for name, state := range map[string]wire.DeliveryState{"accepted": &wire.Accepted{}, "none": nil,
		"released": &wire.Released{}} {
		t.Run(name, func(t *testing.T) {
			rigged(t, func(r *rig) {
				r.grant(0, 10)
				r.send(1)
				r.tell(&wire.Flow{NextIncomingID: wire.Some(uint32(1)), IncomingWindow: 1})
				r.send(0)
				require.Equal(t, NotBlocked, r.out.Send(0, r, make([]byte, 5*MaxFrame)))
				r.c.Flush()
				early := &wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: wire.Some(uint32(1)), Settled: true,
					State: state}
				if name == "released" {
					r.tell(early)
					require.Len(t, r.states, 2)
					return
				}
				r.refuses(encode(t, 1, early, nil), "disposition.state accepts delivery 1, which was not sent whole")
				require.Len(t, r.states, 1)
			})
		})
	}
}

// A disposition settles what was sent and is not settled, however large its range.
func TestDispositions(t *testing.T) {
	settled := func(first, last uint32) *wire.Disposition {
		return &wire.Disposition{Role: wire.RoleReceiver, First: first, Last: wire.Some(last), Settled: true,
			State: &wire.Accepted{}}
	}
	rigged(t, func(r *rig) {
		r.grant(0, 1000)
		r.send(200)
		for _, first := range []uint32{200, 1 << 30, 1 << 31, math.MaxUint32 - 1} {
			r.tell(settled(first, first+1))
		}
		r.tell(&wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: wire.Some(uint32(9)), State: &wire.Received{}})
		require.Empty(t, r.states)
		r.tell(settled(50, 99))
		require.Len(t, r.states, 50)
		r.tell(settled(0, 99))
		require.Len(t, r.states, 100)
		r.tell(&wire.Disposition{Role: wire.RoleReceiver, First: 100, Last: wire.Some(uint32(101)),
			State: &wire.Rejected{Error: wire.Errorf("x", "y")}})
		require.Equal(t, &wire.Rejected{Error: wire.Errorf("x", "y")}, r.states[101])
		require.Equal(t, &wire.Disposition{Role: wire.RoleSender, First: 100, Last: wire.Some(uint32(101)), Settled: true},
			r.seen[len(r.seen)-1], "the peer settles second")
		r.tell(settled(0, math.MaxInt32))
		require.Len(t, r.states, 200)
		require.Empty(t, r.s.out)
		r.refuses(encode(t, 1, settled(0, math.MaxUint32), nil),
			"disposition.last is 4294967295, which comes before first, 0")
	})
	rigged(t, func(r *rig) {
		r.grant(0, 10)
		r.send(3)
		r.tell(&wire.Detach{Handle: 10, Closed: true})
		r.tell(settled(0, 2))
		require.Empty(t, r.states, "the loss of the link is their result")
	})
}

// What the peer says of a message is never sent back: its texts need not be encodable.
func TestAnOutcomeThatCannotBeEncodedIsSettled(t *testing.T) {
	const disposition, rejected, failure = 0x15, 0x25, 0x1d
	rigged(t, func(r *rig) {
		r.grant(0, 10)
		r.send(1)
		r.write(raw(t, disposition, true, uint32(0), nil, false, &wire.Described{Descriptor: uint64(rejected),
			Value: wire.List{&wire.Described{Descriptor: uint64(failure), Value: wire.List{"é"}}}}))
		synctest.Wait()
		require.False(t, r.c.Gone())
		require.Equal(t, []wire.DeliveryState{&wire.Rejected{Error: wire.Errorf("é", "")}}, r.states)
	})
}

// An outcome that cannot be read is none, and certainly no acceptance.
func TestAnOutcomeThatCannotBeReadIsRefused(t *testing.T) {
	rigged(t, func(r *rig) {
		r.grant(0, 10)
		r.send(1)
		twice := wire.Map{{Key: wire.Symbol("k"), Value: true}, {Key: wire.Symbol("l"), Value: true}}
		frame := encode(t, 1, &wire.Disposition{Role: wire.RoleReceiver, First: 0, Settled: true,
			State: &wire.Rejected{Error: &wire.Error{Condition: "x", Info: twice}}}, nil)
		r.refuses(bytes.Replace(frame, []byte{0xa3, 1, 'l'}, []byte{0xa3, 1, 'k'}, 1), "disposition.state cannot be read")
		require.Empty(t, r.states)
	})
}

// The reason of an end is kept although its map of details, which is not used, has a key twice.
func TestTheReasonOfAnEndIsKept(t *testing.T) {
	why := &wire.Error{Condition: wire.DetachForced, Description: "x",
		Info: wire.Map{{Key: wire.Symbol("k"), Value: true}, {Key: wire.Symbol("l"), Value: true}}}
	for what, p := range map[string]wire.Performative{"link": &wire.Detach{Handle: 10, Closed: true, Error: why},
		"session": &wire.End{Error: why}, "connection": &wire.Close{Error: why}} {
		rigged(t, func(r *rig) {
			frame := encode(t, 1, p, nil)
			r.write(bytes.Replace(frame, []byte{0xa3, 1, 'l'}, []byte{0xa3, 1, 'k'}, 1))
			synctest.Wait()
			if what == "connection" {
				r.lost = []error{r.c.Loss()}
			}
			require.Contains(r.t, r.lost, error(&ConditionError{What: what, Condition: "amqp:link:detach-forced",
				Description: "x"}))
		})
	}
}

// An outcome for a delivery of a session that has ended is not one for the next session's.
func TestSessionsNumberTheirDeliveriesApart(t *testing.T) {
	rigged(t, func(r *rig) {
		next, err := r.c.Begin(t.Context())
		require.NoError(t, err)
		require.Equal(t, r.s.first+numbersApart, next.first)
	})
}

// With a delivery that is never settled, the memory for later ones is bounded.
func TestUnsettledDeliveriesAreBounded(t *testing.T) {
	rigged(t, func(r *rig) {
		r.tell(&wire.Flow{NextIncomingID: wire.Some(uint32(0)), IncomingWindow: 1 << 30, Handle: wire.Some(uint32(10)),
			DeliveryCount: wire.Some(uint32(0)), LinkCredit: wire.Some(uint32(1 << 30))})
		for range maxUnsettled {
			require.Equal(t, NotBlocked, r.out.Send(0, r, nil))
		}
		require.Equal(t, NoWindow, r.out.Send(0, r, nil))
		r.c.Flush()
		before := r.credit
		r.tell(&wire.Disposition{Role: wire.RoleReceiver, First: 0, Settled: true, State: &wire.Accepted{}})
		require.Equal(t, before+1, r.credit)
		require.Equal(t, NotBlocked, r.out.Send(0, r, nil))
	})
}

// The deliveries of a link that ends hold up no other link of the session.
func TestTheEndOfALinkMakesRoomForOthers(t *testing.T) {
	rigged(t, func(r *rig) {
		credited := 0
		other, err := r.s.NewSender(r.t.Context(), &SenderOptions{Credited: func() { credited++ },
			LinkOptions: LinkOptions{Name: "other"}})
		require.NoError(t, err)
		for _, handle := range []uint32{10, 12} {
			r.tell(&wire.Flow{NextIncomingID: wire.Some(uint32(0)), IncomingWindow: 1 << 30, Handle: wire.Some(handle),
				DeliveryCount: wire.Some(uint32(0)), LinkCredit: wire.Some(uint32(1 << 30))})
		}
		for range maxUnsettled {
			require.Equal(t, NotBlocked, r.out.Send(0, r, nil))
		}
		require.Equal(t, NoWindow, other.Send(0, r, nil))
		r.c.Flush()
		r.tell(&wire.Detach{Handle: 10, Closed: true})
		require.Equal(t, 1, credited)
		require.Equal(t, NotBlocked, other.Send(0, r, nil))
	})
}

// Transfers must follow each other, and need credit. Settling a message gives its credit back.
func TestTransfers(t *testing.T) {
	body := []byte{0, 0x53, 0x75, 0xa0, 1, 'x'}
	for reason, p := range map[string]*wire.Transfer{
		"transfer.delivery-id is missing":       {Handle: 11},
		"transfer.delivery-tag is missing":      {Handle: 11, DeliveryID: wire.Some(uint32(1))},
		"transfer.delivery-id is 5, not 1":      delivery(5, false),
		"transfer.resume is set":                {Handle: 11, DeliveryID: wire.Some(uint32(1)), Resume: true},
		"on which the peer does not send":       {Handle: 10, DeliveryID: wire.Some(uint32(1))},
		"is 7, to which no link is attached":    {Handle: 7, DeliveryID: wire.Some(uint32(1))},
		"handle is 11, that of a link without":  nil,
		"is 2 before the end of delivery 1":     delivery(1, true),
		"delivery-tag has the length 33, more ": {Handle: 11, DeliveryTag: make([]byte, 33)},
	} {
		t.Run(reason, func(t *testing.T) {
			rigged(t, func(r *rig) {
				r.tell(delivery(0, false), body...)
				switch {
				case p == nil:
					for id := range uint32(4) {
						r.tell(delivery(id+1, false), body...)
					}
					p = delivery(5, false)
				case p.More:
					r.tell(p)
					p = delivery(2, false)
				}
				r.refuses(encode(t, 1, p, nil), reason)
			})
		})
	}
	rigged(t, func(r *rig) {
		for id := range uint32(100) {
			aborted := delivery(id, false)
			if aborted.Aborted = id%3 == 0; aborted.Aborted {
				r.tell(aborted)
				continue
			}
			r.tell(delivery(id, true), body...)
			r.tell(&wire.Transfer{Handle: 11}, body...)
			m := r.got[len(r.got)-1]
			require.Equal(t, "xx", string(m.Body()))
			r.in.Settle(&m, &wire.Accepted{})
			r.in.Settle(&m, &wire.Accepted{})
			synctest.Wait()
		}
		require.Len(t, r.got, 66)
	})
}

// The rest of a delivery on a link that is being detached does not count as the next delivery.
func TestTheRestOfADroppedDelivery(t *testing.T) {
	rigged(t, func(r *rig) {
		other, err := r.s.NewReceiver(r.t.Context(), &ReceiverOptions{Credit: 5, Message: func(*Receiver, Incoming) {}})
		require.NoError(r.t, err)
		r.tell(delivery(5, true))
		r.in.Detach()
		whole := delivery(6, false)
		whole.Handle = 12
		r.tell(whole)
		r.tell(delivery(5, false))
		whole.DeliveryID = wire.Some(uint32(7))
		r.tell(whole)
		require.EqualValues(r.t, 2, other.count)
	})
}

// A message that is too large or broken is reported, and so is one without room for its parts. The
// bytes of incomplete messages are bounded.
func TestMessagesThatAreNotKept(t *testing.T) {
	rigged(t, func(r *rig) {
		part := make([]byte, 60_000)
		r.tell(delivery(0, true), part...)
		for range 7 {
			r.tell(&wire.Transfer{Handle: 11, More: true}, part...)
		}
		require.Zero(t, r.c.partial)
		r.tell(&wire.Transfer{Handle: 11})
		r.tell(delivery(1, false), 0, 0x53, 0x7f, 0x40)
		r.c.mu.Lock()
		r.c.partial = maxPartial - 10
		r.c.mu.Unlock()
		r.tell(delivery(2, true), part...)
		r.tell(&wire.Transfer{Handle: 11})
		r.tell(delivery(3, true), 0, 0x53, 0x75)
		r.tell(&wire.Transfer{Handle: 11}, 0xa0, 0)
		require.Equal(t, maxPartial-10, r.c.partial)
		for i, want := range []struct {
			condition wire.Symbol
			text      string
		}{
			{wire.MessageSizeExceeded, "message has more than 400000 bytes"}, {wire.DecodeError, "message: section 127"},
			{wire.ResourceLimitExceeded, "message is one of several incomplete ones"},
		} {
			require.Equal(t, want.condition, r.got[i].Bad.Condition)
			require.ErrorContains(t, r.got[i].Bad, want.text)
		}
		require.Nil(t, r.got[3].Bad)
		r.tell(&wire.Detach{Handle: 11, Closed: true})
	})
}

// An idle time-out that AMQP cannot express is announced as the longest one.
func TestALongIdleTimeoutDoesNotWrap(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		line, far := pipe(t)
		go func() {
			_, _ = Connect(t.Context(), line, line, &Options{IdleTimeout: 100 * 24 * time.Hour})
		}()
		first := make([]byte, 1000)
		n, err := far.Read(first)
		require.NoError(t, err)
		f, _, err := wire.Split(first[wire.HeaderSize:n], 1000)
		require.NoError(t, err)
		p, _, err := f.Performative()
		require.NoError(t, err)
		require.EqualValues(t, uint32(math.MaxUint32), p.(*wire.Open).IdleTimeout.V)
		_ = far.Close()
	})
}

// Channels are reused when the peer has ended their sessions, and no sooner.
func TestChannelsAreReused(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		r := connected(t, &wire.Open{ContainerID: "hub", MaxFrameSize: 512, ChannelMax: 0})
		s, err := r.c.Begin(t.Context())
		require.NoError(t, err)
		began := time.Now()
		_, err = r.c.Begin(t.Context())
		require.ErrorIs(t, err, transport.Quota)
		require.Equal(t, freeLimit, time.Since(began))
		s.End(gone)
		time.AfterFunc(time.Second, func() { r.say(1, &wire.End{}) })
		_, err = r.c.Begin(t.Context())
		require.NoError(t, err)
	})
}

// Violations before the open are not retried: the next connection would fail in the same way.
func TestTheOpenIsChecked(t *testing.T) {
	for reason, p := range map[string]wire.Performative{
		"open.max-frame-size is 60, less than 512": &wire.Open{ContainerID: "hub", MaxFrameSize: 60},
		"0x11, which must not come here":           &wire.Begin{},
		"frame has the type 1, not 0":              &wire.Outcome{},
	} {
		testkit.Bubble(t, func(t *testing.T) {
			line, far := pipe(t)
			_, _ = far.Write(append([]byte("AMQP\x00\x01\x00\x00"), encode(t, 0, p, nil)...))
			_, err := Connect(t.Context(), line, line, new(Options))
			require.ErrorContains(t, err, reason)
			require.NotErrorIs(t, err, transport.ErrViolation)
		})
	}
}

// The SASL dialogue takes offers and outcomes only in their order, and no challenge that it did not
// ask for.
func TestTheSASLDialogueIsChecked(t *testing.T) {
	offer := &wire.Mechanisms{Mechanisms: []wire.Symbol{"PLAIN"}}
	for reason, frames := range map[string][]wire.Performative{
		"0x44, which must not come here": {&wire.Outcome{}}, "0x40": {offer, offer},
		"a challenge, which": {offer, &wire.Challenge{Challenge: []byte("x")}},
		"is missing":         {&wire.Mechanisms{}}, "frame has the type 0": {&wire.Open{ContainerID: "h"}},
		"SASL outcome 1": {offer, &wire.Outcome{Code: 1}}, "no SASL mechanism": {&wire.Mechanisms{
			Mechanisms: []wire.Symbol{"X"}}},
	} {
		testkit.Bubble(t, func(t *testing.T) {
			line, far := pipe(t)
			b := []byte("AMQP\x03\x01\x00\x00")
			for _, p := range frames {
				b = append(b, encode(t, 0, p, nil)...)
			}
			_, _ = far.Write(b)
			_, err := Connect(t.Context(), line, line, &Options{SASL: []wire.Init{{Mechanism: "PLAIN"}}})
			require.ErrorContains(t, err, reason)
			require.NotErrorIs(t, err, transport.ErrViolation)
		})
	}
}

func TestTextsOfPeersAreBounded(t *testing.T) {
	long := strings.Repeat("é", 5000)
	c := ConditionOf("link", &wire.Error{Condition: wire.Symbol(long), Description: long})
	require.Less(t, len(c.Error()), 3*scrub.MaxPeer)
	require.NotContains(t, c.Description, "�")
}

func TestKindsOfSASLOutcomes(t *testing.T) {
	protocol := dialer.Protocol{Name: "amqp", Kind: Kind}
	for code, kind := range map[int]transport.Kind{1: transport.Unauthorized, 0x7f: transport.Unknown} {
		e := protocol.Error(&SASLError{code})
		require.Equal(t, kind, e.Kind)
		require.ErrorContains(t, e, strconv.Itoa(code))
	}
	require.Equal(t, transport.Unsupported, protocol.Error(ErrNoMechanism).Kind)
	require.Equal(t, transport.Protocol, protocol.Error(ErrNotAMQP).Kind)
}
