package device_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// module makes a client of a module over f and closes it at the end of the test.
func module(t *testing.T, f *fake, o *device.Options) *device.Client {
	t.Helper()
	creds := creds()
	creds.ModuleID = "mod-1"
	c, err := device.New(creds, f, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// deliverInput delivers a message that came by an input, and reports whether it was taken.
func (s *fakeSession) deliverInput(input, ref string) bool {
	return s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMessages, Ref: []byte(ref),
		Msg: &transport.Message{ID: ref, Input: input}})
}

// handler returns a handler that adds its name, the input and the id.
func (h *handled) handler(name string) device.MessageHandler {
	return func(_ context.Context, m *transport.Message) error {
		h.add(name + " " + m.Input + " " + m.ID)
		return nil
	}
}

func TestEachInputHasItsHandlerAndTheOthersTheDefault(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handled{}
		f := &fake{}
		c := module(t, f, nil)
		c.HandleInput("a", h.handler("A"))
		c.HandleInput("b", h.handler("B"))
		c.HandleMessages(h.handler("default"))
		open(t, c)
		require.Equal(t, []transport.Features{transport.FeatureMessages}, f.subscriptions())
		for i, input := range []string{"a", "b", "c", "a", "A", ""} {
			require.True(t, f.last().deliverInput(input, ids(1, 6)[i]))
		}
		synctest.Wait()
		require.Equal(t, []string{"A a 1", "B b 2", "default c 3", "A a 4", "default A 5", "default  6"}, h.list())
		require.Len(t, f.verdicts(), 6)
		s := c.Stats()
		require.Equal(t, []uint64{6, 6, 0}, []uint64{s.Received, s.MessagesAccepted, s.InputsUnhandled})
	})
}

func TestAMessageOfAnInputWithoutAHandlerIsRejectedInItsTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handled{}
		f := &fake{}
		verdicts := 0
		c := module(t, f, &device.Options{Trace: &device.Trace{InputUnhandled: func(input string) {
			h.add("unhandled " + input)
			if input == "bad" {
				panic("ignored")
			}
		}, Settled: func(transport.Outcome) { verdicts++ }}})
		c.HandleInput("in", func(_ context.Context, m *transport.Message) error {
			time.Sleep(time.Second)
			h.add(m.ID)
			return nil
		})
		open(t, c)
		s := f.last()
		require.True(t, s.deliverInput("in", "1") && s.deliverInput("other", "2") && s.deliverInput("bad", "3") &&
			s.deliverInput("", "4") && s.deliverInput("in", "5") && s.deliverUnasked("6"))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"1", "unhandled other", "unhandled bad", "unhandled ", "5"}, h.list())
		require.Equal(t, []settled{{1, "1", transport.OutcomeAccept}, {1, "2", transport.OutcomeReject},
			{1, "3", transport.OutcomeReject},
			{1, "4", transport.OutcomeReject}, {1, "5", transport.OutcomeAccept}, {1, "6", transport.OutcomeAccept}},
			f.verdicts())
		require.Equal(t, 2, verdicts, "Settled is about what a handler decided")
		st := c.Stats()
		require.Equal(t, []uint64{5, 2, 0, 0, 3, 1}, []uint64{st.Received, st.MessagesAccepted, st.MessagesReleased,
			st.MessagesRejected, st.InputsUnhandled, st.HandlerPanics})
		require.Equal(t, device.StateConnected, c.Status().State)
	})
}

func TestHandlersOfInputsAreReplacedAndRemovedWhileConnected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handled{}
		f := &fake{}
		c := module(t, f, nil)
		c.HandleInput("never there", nil)
		open(t, c)
		require.Empty(t, f.subscriptions(), "a client without handlers subscribes to nothing")
		deliver := func(inputs ...string) []string {
			h.ids = nil
			for _, input := range inputs {
				require.True(t, f.last().deliverInput(input, "x"))
			}
			synctest.Wait()
			return h.list()
		}
		c.HandleInput("a", h.handler("first"))
		synctest.Wait()
		require.Equal(t, []transport.Features{transport.FeatureMessages}, f.subscriptions())
		require.Equal(t, []string{"first a x"}, deliver("a", "b"))
		c.HandleInput("a", h.handler("second"))
		c.HandleInput("b", h.handler("B"))
		require.Equal(t, []string{"second a x", "B b x"}, deliver("a", "b"))
		c.HandleMessages(h.handler("default"))
		c.HandleInput("a", nil)
		require.Equal(t, []string{"default a x", "B b x"}, deliver("a", "b"))
		c.HandleMessages(nil)
		require.Equal(t, []string{"B b x"}, deliver("a", "b"))
		require.EqualValues(t, 2, c.Stats().InputsUnhandled)

		// with the last handler the rule for inputs without one ends: messages wait
		c.HandleInput("b", nil)
		settled := len(f.verdicts())
		require.Empty(t, deliver("a", "b"))
		require.Len(t, f.verdicts(), settled)
		c.HandleInput("b", h.handler("again"))
		synctest.Wait()
		require.Equal(t, []string{"again b x"}, h.list())
		require.EqualValues(t, 3, c.Stats().InputsUnhandled)
	})
}

// A gateway sends 16 messages before the first is settled. None of them is kept back for an input
// without a handler, so messages behind them come.
func TestTheLimitOfAGatewayBlocksNoInput(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c := module(t, f, &device.Options{Inbox: 16})
		got := 0
		c.HandleInput("in", func(context.Context, *transport.Message) error {
			time.Sleep(time.Second)
			got++
			return nil
		})
		open(t, c)
		const limit, n = 16, 1000
		for i := range n {
			for i-len(f.verdicts()) >= limit { // as the gateway counts
				time.Sleep(time.Second)
			}
			input := "unknown"
			if i%10 == 9 {
				input = "in"
			}
			require.True(t, f.last().deliverInput(input, "x"))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, n/10, got)
		require.EqualValues(t, n-n/10, c.Stats().InputsUnhandled)
		require.Len(t, f.verdicts(), n)
	})
}

// The transport reuses the memory of a delivery when Deliver has returned.
func TestAHandlerHasItsOwnCopyOfTheSystemProperties(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c := module(t, f, nil)
		var got []string
		c.HandleInput("in", func(_ context.Context, m *transport.Message) error {
			time.Sleep(time.Second)
			if m.System == nil {
				got = append(got, "none")
			} else {
				got = append(got, m.System.UserID+m.System.To)
			}
			return nil
		})
		open(t, c)
		memory := new(transport.SystemProperties)
		for i, p := range []*transport.SystemProperties{{UserID: "one"}, {To: "two"}, nil, {UserID: "four"}} {
			d := &transport.Delivery{Kind: transport.FeatureMessages, Ref: []byte{byte(i)}, Msg: &transport.Message{Input: "in"}}
			if p != nil {
				*memory, d.Msg.System = *p, memory
			}
			require.True(t, f.last().cfg.Sink.Deliver(d))
			*memory = transport.SystemProperties{UserID: "overwritten"}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"one", "two", "none", "four"}, got)
	})
}

// A handler that keeps a message, or passes it on without a copy, must not see the next one in it.
// Only boards reuse the memory.
func TestAMessageKeepsItsMemoryAfterItsHandler(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c := module(t, f, &device.Options{Inbox: 1})
		var kept []*transport.Message
		c.HandleInput("in", func(_ context.Context, m *transport.Message) error {
			kept = append(kept, m)
			return nil
		})
		open(t, c)
		for _, text := range []string{"first", "OTHER"} {
			require.True(t, f.last().cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMessages, Ref: []byte(text),
				Msg: &transport.Message{ID: text, Input: "in", Body: []byte(text),
					Properties: []transport.Property{{Name: "name", Value: text}},
					System:     &transport.SystemProperties{UserID: text}}}))
			synctest.Wait()
		}
		require.Len(t, kept, 2)
		for i, text := range []string{"first", "OTHER"} {
			m := kept[i]
			require.Equal(t, []string{text, text, text, text},
				[]string{m.ID, string(m.Body), m.Properties[0].Value, m.System.UserID})
		}
	})
}

// settling is a transport whose sessions allocate nothing and count what is settled.
type settling struct {
	instant
	n    int
	lot  int           // how many make a lot
	done chan struct{} // gets a value for each lot
}

func (s *settling) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	_, err := s.instant.Dial(ctx, cfg)
	return s, err
}

func (s *settling) Do(r *transport.Request) {
	switch r.Op {
	case transport.OpSubscribe:
		s.sink.Reply(r.ID, transport.Reply{})
	case transport.OpSettle:
		if s.n++; s.n%s.lot == 0 {
			s.done <- struct{}{}
		}
	default:
	}
}

// A received message has memory of its own: its slot with the reference, the body, the properties,
// and System if it has that. Further allocations belong to the handlers' goroutine, which runs once
// for each lot.
func TestAReceivedMessageAllocatesOnlyItsMemory(t *testing.T) {
	creds := creds()
	creds.ModuleID = "mod-1"
	const n = 64
	tr := &settling{lot: n, done: make(chan struct{}, 1)}
	c := made(t, creds, tr, &device.Options{Inbox: n})
	var gate sync.Mutex // keeps the first message of a lot from being settled before the last is there
	handle := func(context.Context, *transport.Message) error {
		gate.Lock()
		defer gate.Unlock()
		return nil
	}
	c.HandleInput("a", handle)
	c.HandleInput("b", handle)
	ctx := within(t, time.Minute)
	require.NoError(t, c.Open(ctx))

	for memory, system := range map[float64]*transport.SystemProperties{4: nil, 5: {UserID: "u"}} {
		d := &transport.Delivery{Kind: transport.FeatureMessages, Ref: []byte("1"),
			Msg: &transport.Message{Input: "b", ID: "1",
				Body: []byte("x"), Properties: []transport.Property{{Name: "a", Value: "b"}}, System: system}}
		lot := func() {
			gate.Lock()
			for range n {
				if !tr.sink.Deliver(d) {
					t.Error("the inbox is full")
				}
			}
			gate.Unlock()
			<-tr.done
		}
		lot()
		require.Less(t, testing.AllocsPerRun(100, lot), memory*n+8, "%v for each message", memory)
	}
}
