package http_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	hubhttp "github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// rig is a session on a scripted hub, and its sink.
type rig struct {
	t testing.TB
	transport.Session
	hub    *scripted
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // Run's, after ended

	mu         sync.Mutex
	done       map[uint16]error
	order      []uint16
	replies    map[uint32]error
	deliveries []delivery
	refuse     bool
	onDone     func() // called by Done, if set; set before the first message
}

type delivery struct {
	ref   []byte
	again bool
	msg   transport.Message
}

// bubble runs f in a synctest bubble with a scripted hub.
func bubble(t *testing.T, f func(t *testing.T, h *scripted)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) { f(t, newScripted(t)) })
}

// options returns options that connect to the hub.
func (h *scripted) options() *hubhttp.Options {
	return &hubhttp.Options{Network: netopt.Options{Plaintext: true, Dial: h.network.DialContext}}
}

// start dials and runs a session.
func (h *scripted) start(t testing.TB, o *hubhttp.Options) *rig {
	t.Helper()
	r, err := h.dial(t, hubhttp.New(o), h.creds(goodKey))
	require.NoError(t, err)
	return r
}

func (h *scripted) dial(t testing.TB, tr transport.Transport, creds *transport.Credentials) (*rig, error) {
	r := &rig{t: t, hub: h, ended: make(chan struct{}), done: map[uint16]error{}, replies: map[uint32]error{}}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	var err error
	if r.Session, err = tr.Dial(ctx, &transport.Config{Creds: creds, Window: 2000, Queue: 4, Sink: r,
		Refused: h.refused}); err != nil {
		cancel()
		return nil, err
	}
	go func() {
		r.err = r.Run(ctx)
		close(r.ended)
	}()
	t.Cleanup(r.close)
	return r, nil
}

// close ends the session and checks that this takes at most a second.
func (r *rig) close() {
	began := time.Now()
	r.cancel()
	<-r.ended
	if took := time.Since(began); took > time.Second {
		r.t.Errorf("Run took %v to end", took)
	}
}

func (r *rig) Done(tag uint16, err error) {
	if r.onDone != nil {
		r.onDone()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, twice := r.done[tag]; twice {
		r.t.Errorf("tag %d is done twice", tag)
	}
	r.done[tag] = err
	r.order = append(r.order, tag)
}

func (r *rig) Reply(id uint32, reply transport.Reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, twice := r.replies[id]; twice && (before == nil) == (reply.Err == nil) {
		r.t.Errorf("request %d is replied to twice, and the answer has not changed", id)
	}
	r.replies[id] = reply.Err
	if !reply.Expires.IsZero() {
		r.t.Errorf("a session over HTTP expires at %v", reply.Expires)
	}
}

func (r *rig) Deliver(d *transport.Delivery) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deliveries = append(r.deliveries, delivery{slices.Clone(d.Ref), d.Redelivered, *d.Msg})
	return !r.refuse
}

// results returns the results so far.
func (r *rig) results() map[uint16]error {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[uint16]error{}
	for tag, err := range r.done {
		out[tag] = err
	}
	return out
}

func (r *rig) delivered() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.deliveries)
}

// bodies returns the bodies of the cloud-to-device messages.
func (r *rig) bodies() []string {
	var out []string
	for _, d := range r.delivered() {
		out = append(out, string(d.msg.Body))
	}
	return out
}

func (r *rig) send(first int, messages ...*transport.Message) {
	items := make([]transport.Item, len(messages))
	for i, m := range messages {
		items[i] = transport.Item{Tag: uint16(first + i), Msg: m}
	}
	r.Send(items)
}

func (r *rig) subscribe() error {
	r.Do(&transport.Request{ID: 7, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
	return r.subscribed()
}

// subscribed returns the latest reply to subscribe.
func (r *rig) subscribed() error {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	err, replied := r.replies[7]
	require.True(r.t, replied)
	return err
}

func (r *rig) settle(ref []byte, o transport.Outcome) {
	r.Do(&transport.Request{Op: transport.OpSettle, Ref: ref, Outcome: o})
	synctest.Wait()
}

// requireLoss checks that the session has ended with this Kind.
func (r *rig) requireLoss(kind transport.Kind) *transport.Error {
	r.t.Helper()
	synctest.Wait()
	select {
	case <-r.ended:
	default:
		require.Fail(r.t, "the session lives")
	}
	e := transport.Find(r.err)
	require.NotNil(r.t, e)
	require.Equal(r.t, transport.ScopeConnection, e.Scope, r.err)
	require.Equal(r.t, transport.OpRun, e.Op)
	require.Equal(r.t, kind, e.Kind, r.err)
	return e
}

func numbered(n int) []*transport.Message {
	out := make([]*transport.Message, n)
	for i := range out {
		id := fmt.Sprint("m-", i)
		out[i] = &transport.Message{ID: id, Body: []byte(id)}
	}
	return out
}

// requireArrived checks that these messages arrived at the hub, in order and once.
func (h *scripted) requireArrived(t testing.TB, messages []*transport.Message) {
	t.Helper()
	var got, want []string
	for _, m := range h.Received() {
		got = append(got, string(m.Body))
	}
	for _, m := range messages {
		want = append(want, string(m.Body))
	}
	require.Equal(t, want, got)
}

// A single message is sent at once, in its plain form. Messages sent during that request travel in
// one batch.
func TestQueuedMessagesShareARequest(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		r := h.start(t, h.options())
		all := numbered(301)
		h.HoldAnswers(true)
		began := time.Now()
		r.send(0, all[0])
		synctest.Wait()
		require.Len(t, h.Received(), 1)
		require.Zero(t, time.Since(began), "it was delayed")
		for i := 1; i < len(all); i++ {
			r.send(i, all[i])
			time.Sleep(time.Millisecond)
		}
		require.Len(t, h.seen(), 1, "one request at a time")
		h.HoldAnswers(false)
		synctest.Wait()
		require.Len(t, r.results(), len(all))
		h.requireArrived(t, all)
		seen := h.seen()
		require.Len(t, seen, 2)
		require.Equal(t, "application/octet-stream", seen[0].header.Get("Content-Type"))
		require.Equal(t, "m-0", seen[0].header.Get("iothub-messageid"))
		require.Equal(t, "/devices/dev-1/messages/events", seen[0].path)
		require.Equal(t, "api-version=2021-04-12", seen[0].query)
		require.Equal(t, "application/vnd.microsoft.iothub.json", seen[1].header.Get("Content-Type"))
		require.Equal(t, 300, seen[1].messages)
	})
}

// No batch exceeds the hub's limits: 500 messages, 256 KB.
func TestBatchesKeepToTheHubsLimits(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		r := h.start(t, h.options())
		all := numbered(1700)
		for i := 1100; i < len(all); i++ {
			all[i].Body = append(all[i].Body, make([]byte, (i%40)*1000)...)
		}
		r.send(0, all...)
		synctest.Wait()
		h.requireArrived(t, all)
		most, longest := 0, 0
		for _, s := range h.seen() {
			most, longest = max(most, s.messages), max(longest, len(s.body))
		}
		require.Equal(t, 500, most)
		require.LessOrEqual(t, longest, 256<<10)
		require.Greater(t, longest, 200<<10, "batches are smaller than they need be")
	})
}

// refusing makes a hub refuse each request that contains a message with this body.
func (h *scripted) refusing(bad string, status int) {
	h.answer = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		if !strings.HasSuffix(r.URL.Path, "/events") {
			return false
		}
		messages, err := parse(r.Header, body)
		require.NoError(h.t, err)
		for _, m := range messages {
			if string(m.Body) == bad {
				w.WriteHeader(status)
				return true
			}
		}
		return false
	}
}

// A batch is refused because of one message: that message fails, all others arrive, in order.
func TestABadMessageFailsAlone(t *testing.T) {
	for _, row := range []struct {
		status int
		kind   transport.Kind
	}{{400, transport.Invalid}, {413, transport.TooLarge}, {422, transport.Invalid}} {
		t.Run(fmt.Sprint(row.status), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				h.refusing("m-77", row.status)
				r := h.start(t, h.options())
				all := numbered(200)
				r.send(0, all...)
				synctest.Wait()
				results := r.results()
				require.Len(t, results, 200)
				for tag, err := range results {
					if tag != 77 {
						require.NoError(t, err)
					}
				}
				require.ErrorIs(t, results[77], row.kind)
				e := transport.Find(results[77])
				require.Equal(t, transport.ScopeOperation, e.Scope)
				var se *transport.StatusError
				require.ErrorAs(t, results[77], &se)
				require.Equal(t, row.status, se.Status)
				h.requireArrived(t, slices.Delete(slices.Clone(all), 77, 78))
				before := len(h.seen())
				r.send(200, numbered(500)[200:]...)
				synctest.Wait()
				require.Len(t, h.seen(), before+1, "batches stay as large as they were")
				require.LessOrEqual(t, len(h.seen()), 20, "requests to find one in 200")
			})
		})
	}
}

// The session detects a hub with a smaller batch limit, and remembers it.
func TestAHubWithASmallerLimit(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		refused := 0
		h.answer = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			if len(body) > 20_000 {
				refused++
				refuse(w, 413001, "MessageTooLarge")
			}
			return len(body) > 20_000
		}
		r := h.start(t, h.options())
		all := numbered(1500)
		r.send(0, all...)
		synctest.Wait()
		h.requireArrived(t, all)
		require.Less(t, refused, 8)
	})
}

// If the hub takes nothing for the moment, all queued messages are reported, with the hub's
// Retry-After. The session sends nothing more before the client sends again.
func TestATransientRefusalStopsAllMessages(t *testing.T) {
	for _, row := range []struct {
		code  int
		after string
		kind  transport.Kind
		want  time.Duration
	}{
		{429001, "17", transport.Throttled, 17 * time.Second},
		// the bubble's clock begins at midnight
		{503005, "Sat, 01 Jan 2000 00:00:30 GMT", transport.Unavailable, 30 * time.Second},
		{500001, "", transport.Unavailable, 0},
		{500008, "", transport.Timeout, 0},
		{400024, "", transport.Timeout, 0}, // the hub took too long
		{408000, "", transport.Timeout, 0},
		{400021, "", transport.Unavailable, 0}, // the hub cancelled the request
		{403002, "", transport.Quota, 0},
	} {
		t.Run(fmt.Sprint(row.code), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				busy := true
				h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
					if !busy || !strings.HasSuffix(r.URL.Path, "/events") {
						return false
					}
					if row.after != "" {
						w.Header().Set("Retry-After", row.after)
					}
					refuse(w, row.code, "x")
					return true
				}
				r := h.start(t, h.options())
				all := numbered(1200)
				r.send(0, all...)
				synctest.Wait()
				require.Len(t, h.seen(), 1)
				first := strings.Count(string(h.seen()[0].body), `"body":`)
				require.Greater(t, first, 100)
				results := r.results()
				require.Len(t, results, len(all))
				for i, tag := range r.order {
					require.Equal(t, uint16(i), tag)
				}
				for tag, err := range results {
					e := transport.Find(err)
					require.Equal(t, row.kind, e.Kind)
					asked := int(tag) < first // messages of the refused request
					open := row.kind == transport.Unavailable || row.kind == transport.Timeout
					require.Equal(t, asked && open, errors.Is(err, transport.ErrOutcomeUnknown))
					require.Equal(t, transport.ScopeOperation, e.Scope)
					require.Equal(t, row.want, e.RetryAfter)
					require.True(t, errfilter.Retryable(err))
				}
				h.change(func() { busy = false })
				r.mu.Lock()
				clear(r.done)
				r.mu.Unlock()
				r.send(0, all...)
				synctest.Wait()
				h.requireArrived(t, all)
			})
		})
	}
}

// A batch that the client chose before it learned of a refusal is refused too. Otherwise it would
// overtake the messages that were refused.
func TestBatchesOnTheirWayDuringARefusal(t *testing.T) {
	for _, row := range []struct {
		name string
		// send sends the second batch, when the first message is about to be reported.
		send func(r *rig, second func())
	}{
		{"before the report", func(_ *rig, second func()) { second() }},
		{"after the report", func(r *rig, second func()) { go func() { synctest.Wait(); second() }() }},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				var refused atomic.Bool
				h.refused = refused.Load
				busy := true
				h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
					if !busy || !strings.HasSuffix(r.URL.Path, "/events") {
						return false
					}
					refuse(w, 503001, "x")
					return true
				}
				r := h.start(t, h.options())
				all := numbered(30)
				var once sync.Once
				r.onDone = func() {
					once.Do(func() { row.send(r, func() { r.send(10, all[10:]...) }) })
					refused.Store(true)
				}
				r.send(0, all[:10]...)
				time.Sleep(time.Second)
				require.Len(t, h.seen(), 1, "the second batch was sent")
				results := r.results()
				require.Len(t, results, len(all))
				for tag, err := range results {
					require.Equal(t, transport.Unavailable, transport.Find(err).Kind, tag)
					require.Equal(t, tag < 10, errors.Is(err, transport.ErrOutcomeUnknown), tag)
				}
				h.change(func() { busy = false })
				refused.Store(false)
				r.mu.Lock()
				clear(r.done)
				r.mu.Unlock()
				r.send(0, all...)
				synctest.Wait()
				h.requireArrived(t, all)
			})
		})
	}
}

// An answer about the identity ends the session; it is not reported for a message.
func TestAnAnswerAboutTheIdentityEndsTheSession(t *testing.T) {
	for _, row := range []struct {
		code int
		kind transport.Kind
	}{
		{401003, transport.Unauthorized}, {404001, transport.NotFound}, {403012, transport.Forbidden},
		{403001, transport.Forbidden}, {405000, transport.Unsupported},
	} {
		t.Run(fmt.Sprint(row.code), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
					if strings.HasSuffix(r.URL.Path, "/events") {
						refuse(w, row.code, "x")
						return true
					}
					return false
				}
				r := h.start(t, h.options())
				r.send(0, numbered(3)...)
				e := r.requireLoss(row.kind)
				require.False(t, errfilter.Retryable(e))
				require.Empty(t, r.results())
			})
		})
	}
}

// A hub that does not support this API version says so to each request. There is no retry: only
// another version of this library helps. Of a poll see TestAnUnexpectedAnswerToAPoll.
func TestAnUnknownAPIVersion(t *testing.T) {
	requireUnsupported := func(t *testing.T, err error) {
		t.Helper()
		require.ErrorIs(t, err, transport.Unsupported)
		require.ErrorContains(t, err, "does not speak this api-version")
		require.False(t, errfilter.Retryable(err))
		var se *transport.StatusError
		require.ErrorAs(t, err, &se)
		require.Equal(t, 400001, se.Code)
	}
	for _, from := range []string{"the beginning", "a message", "a batch"} {
		t.Run(from, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				old := from == "the beginning"
				h.answer = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
					if old {
						refuse(w, 400001, "InvalidProtocolVersion")
					}
					return old
				}
				if old {
					c, err := device.New(h.creds(goodKey), hubhttp.New(h.options()), nil)
					require.NoError(t, err)
					defer c.Close()
					requireUnsupported(t, c.Open(t.Context()))
					time.Sleep(time.Hour)
					require.Len(t, h.requests, 1)
					return
				}
				r := h.start(t, h.polling(time.Minute))
				require.NoError(t, r.subscribe())
				before := len(h.seen())
				h.change(func() { old = true })
				r.send(0, numbered(map[string]int{"a message": 1, "a batch": 9}[from])...)
				requireUnsupported(t, r.requireLoss(transport.Unsupported))
				require.Len(t, h.seen(), before+1)
				require.Empty(t, r.results(), "no message is blamed for it")
			})
		})
	}
}

func TestRedirectionsAreNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		bubble(t, func(t *testing.T, h *scripted) {
			h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				w.Header().Set("Location", "https://elsewhere.example.test/")
				w.WriteHeader(status)
				return true
			}
			_, err := h.dial(t, hubhttp.New(h.options()), h.creds(goodKey))
			require.ErrorIs(t, err, transport.Protocol)
			require.Len(t, h.requests, 1)
		})
	}
}

// Messages that cannot travel over HTTP fail locally, and only those.
func TestInvalidMessagesAreRefusedLocally(t *testing.T) {
	property := func(name, value string) *transport.Message {
		return &transport.Message{Properties: []transport.Property{{Name: name, Value: value}}}
	}
	big := make([]byte, 200_000)
	for _, row := range []struct {
		what string
		m    *transport.Message
		kind transport.Kind
		text string
	}{
		{"over 256 KB", &transport.Message{Body: make([]byte, transport.MaxMessageSize+1)}, transport.TooLarge,
			"over the limit of 262144"},
		{"no name", property("", "x"), transport.Invalid, `name ""`},
		{"a space in a name", property("a b", "x"), transport.Invalid, `"a b"`},
		{"a line break in a name", property("a\r\nx: y", "x"), transport.Invalid, `"a\r\nx: y"`},
		{"a colon in a name", property("a:b", "x"), transport.Invalid, `"a:b"`},
		{"another script in a name", property("größe", "x"), transport.Invalid, "größe"},
		{"a value that is no text", property("a", "\xff"), transport.Invalid, "UTF-8"},
		{"a topic", &transport.Message{Topic: "a"}, transport.Unsupported, "message Topic has no place over HTTPS"},
		{"a response topic", &transport.Message{ResponseTopic: "a"}, transport.Unsupported, "message ResponseTopic"},
		{"a retained message", &transport.Message{Retain: true}, transport.Unsupported, "message Retain"},
		{"an output", &transport.Message{Output: "a"}, transport.Unsupported,
			"message Output has no place over HTTPS; leave it unset, or use MQTT or AMQP"},
		{"a diagnostic id", &transport.Message{System: &transport.SystemProperties{DiagnosticID: "a"}},
			transport.Unsupported, "message System.DiagnosticID has no place"},
		{"a diagnostic context", &transport.Message{System: &transport.SystemProperties{DiagnosticContext: "a"}},
			transport.Unsupported, "message System.DiagnosticContext has no place"},
		{"a user that is no text", &transport.Message{System: &transport.SystemProperties{UserID: "\xff"}},
			transport.Invalid, "System.UserID is not valid UTF-8"},
		{"an id that is no text", &transport.Message{ID: "\xff"}, transport.Invalid, "ID"},
		{"a component that is no text", &transport.Message{Component: "\xff"}, transport.Invalid, "Component"},
		{"too large for the form that it needs", &transport.Message{Body: big,
			Properties: []transport.Property{{Name: "a", Value: "ä"}}}, transport.TooLarge,
			"message of 200003 bytes does not fit into a request: it takes 266737 bytes as JSON, of 261119, and its " +
				"properties do not fit into headers, which are printable ASCII of 8192 bytes in all; split it, or send fewer"},
		{"too many properties", manyProperties(12_000), transport.TooLarge, "8192 bytes in all; send fewer"},
	} {
		t.Run(row.what, func(t *testing.T) {
			for _, batch := range []int{0, 1} {
				bubble(t, func(t *testing.T, h *scripted) {
					o := h.options()
					o.Batch = batch
					r := h.start(t, o)
					good := numbered(3)
					r.send(0, good[0], good[1], row.m, good[2])
					synctest.Wait()
					results := r.results()
					require.ErrorIs(t, results[2], row.kind)
					require.ErrorContains(t, results[2], row.text)
					require.Equal(t, transport.ScopeOperation, transport.Find(results[2]).Scope)
					require.NoError(t, errors.Join(results[0], results[1], results[3]))
					h.requireArrived(t, good)
				})
			}
		})
	}
}

func manyProperties(n int) *transport.Message {
	m := new(transport.Message)
	for i := range n {
		m.Properties = append(m.Properties, transport.Property{Name: fmt.Sprint("p", i)})
	}
	return m
}

// Each message arrives unchanged, whatever its form.
func TestFormsOfAMessage(t *testing.T) {
	large := make([]byte, 230_000)
	for _, row := range []struct {
		what  string
		m     transport.Message
		plain bool
	}{
		{"body only", transport.Message{Body: []byte("x")}, true},
		{"empty", transport.Message{}, true},
		{"plain properties", transport.Message{ID: "1", Properties: []transport.Property{{Name: "a", Value: "b c"},
			{Name: "b", Value: ""}}}, true},
		{"a value with an umlaut", transport.Message{Properties: []transport.Property{{Name: "a", Value: "ü"}}}, false},
		{"a value with a line break", transport.Message{Properties: []transport.Property{{Name: "a",
			Value: "a\r\nb: c\x00\"\\"}}}, false},
		{"a value that ends with a space", transport.Message{Properties: []transport.Property{{Name: "a", Value: "b "}}},
			false},
		{"capitals", transport.Message{Properties: []transport.Property{{Name: "Level", Value: "x"}}}, false},
		{"a long value", transport.Message{Properties: []transport.Property{{Name: "a", Value: strings.Repeat("x", 20_000)}}},
			false},
		{"an id with an umlaut", transport.Message{ID: "ä", CorrelationID: "ö", ContentType: "ü", ContentEncoding: "ß"},
			false},
		{"a component", transport.Message{Component: "thermostat1"}, true},
		{"a long component", transport.Message{Component: strings.Repeat("x", 20_000)}, false},
		{"a component with an umlaut", transport.Message{Component: "Wärme"}, false},
		{"system properties", *everything(), true},
		{"a user with an umlaut", transport.Message{System: &transport.SystemProperties{UserID: "Jürgen"}}, false},
		{"a long schema", transport.Message{System: &transport.SystemProperties{Schema: strings.Repeat("x", 20_000)}},
			false},
		{"too large for a batch", transport.Message{Body: large, Properties: []transport.Property{{Name: "a", Value: "b"}}},
			true},
	} {
		t.Run(row.what, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				r := h.start(t, h.options())
				r.send(0, &row.m)
				synctest.Wait()
				r.send(1, &row.m, &row.m) // and in a batch
				synctest.Wait()
				require.NoError(t, errors.Join(r.results()[0], r.results()[1], r.results()[2]))
				got := h.Received()
				require.Len(t, got, 3)
				want := row.m
				want.Body = append([]byte{}, want.Body...)
				for _, m := range got {
					m.Body = append([]byte{}, m.Body...)
					require.Equal(t, want, m.Message)
				}
				require.Equal(t, row.plain, h.seen()[0].header.Get("Content-Type") == "application/octet-stream")
			})
		})
	}
	bubble(t, func(t *testing.T, h *scripted) { // the only form for a large message; its name loses its capital
		r := h.start(t, h.options())
		r.send(0, &transport.Message{Body: large, Properties: []transport.Property{{Name: "Level", Value: "x"}}})
		synctest.Wait()
		require.NoError(t, r.results()[0])
		require.Equal(t, "level", h.Received()[0].Properties[0].Name)
	})
}

// dialed returns the number of connections so far.
func (h *scripted) dialed() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.conns)
}

// One connection serves all requests, including refused ones. An idle connection that the hub
// closes cleanly is not a loss.
func TestConnectionsAreReused(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.refusing("m-5", 400)
		r := h.start(t, h.options())
		all := numbered(50)
		for i, m := range all {
			r.send(i, m)
			synctest.Wait()
			time.Sleep(time.Second)
		}
		require.Len(t, r.results(), 50)
		require.Equal(t, 1, h.dialed())

		h.each(func(c *memConn) { _ = c.Close() })
		synctest.Wait()
		r.send(100, all[0])
		synctest.Wait()
		require.NoError(t, r.results()[100])
		require.Equal(t, 2, h.dialed())

		time.Sleep(61 * time.Second) // IdleTimeout
		r.send(101, all[1])
		synctest.Wait()
		require.NoError(t, r.results()[101])
		require.Equal(t, 3, h.dialed())

		h.each((*memConn).Reset)
		r.requireLoss(transport.Network)
	})
}

// A hub that closes each connection after its answer costs one connection per request, and no
// session.
func TestAHubWithoutKeepAlive(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.answer = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			w.Header().Set("Connection", "close")
			return false
		}
		r := h.start(t, h.options())
		for i, m := range numbered(10) {
			r.send(i, m)
			synctest.Wait()
			require.Contains(t, r.results(), uint16(i))
			require.NoError(t, r.results()[uint16(i)])
		}
		require.Equal(t, 11, h.dialed())
	})
	bubble(t, func(t *testing.T, h *scripted) { // requests in immediate succession
		h.answer = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			w.Header().Set("Connection", "close")
			return false
		}
		o := h.options()
		o.Batch = 1
		r := h.start(t, o)
		all := numbered(200)
		r.send(0, all...)
		synctest.Wait()
		require.Len(t, r.results(), len(all))
		h.requireArrived(t, all)
		require.Equal(t, 1+len(all), h.dialed())
	})
}

// A hub that does not answer within the request's timeout is a loss. A large request has more time.
func TestEachRequestHasATimeout(t *testing.T) {
	for size, want := range map[int]time.Duration{10: 60 * time.Second, 100 << 10: 85 * time.Second} {
		bubble(t, func(t *testing.T, h *scripted) {
			r := h.start(t, h.options())
			h.HoldAnswers(true)
			began := time.Now()
			r.send(0, &transport.Message{Body: make([]byte, size)})
			<-r.ended
			require.Equal(t, want, time.Since(began))
			r.requireLoss(transport.Timeout)
			require.Empty(t, r.results())
		})
	}
}

// A hub may answer before it has read everything. Then the message's memory belongs to its owner
// again.
func TestAnEarlyAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.early = true
		r := h.start(t, h.options())
		m := &transport.Message{Body: make([]byte, 250_000)}
		r.send(0, m)
		synctest.Wait()
		require.ErrorIs(t, r.results()[0], transport.TooLarge)
		copy(m.Body, make([]byte, len(m.Body))) // the race detector sees copy, but not clear
		h.mu.Lock()
		h.early = false
		h.mu.Unlock()
		r.send(1, &transport.Message{Body: []byte("x")})
		synctest.Wait()
		require.NoError(t, r.results()[1])
	})
}

// stubbornConn blocks large writes until it is closed, and then reports them as successful.
type stubbornConn struct {
	net.Conn
	closed chan struct{}
	once   sync.Once
}

func (c *stubbornConn) Write(p []byte) (int, error) {
	if len(p) < 16<<10 {
		return c.Conn.Write(p)
	}
	<-c.closed
	return len(p), nil
}

func (c *stubbornConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// net/http may read more of a body after the answer, when the message's memory belongs to its owner
// again. Only the race detector sees a violation.
func TestABodyIsNotReadAfterItsAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.unread = func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			require.NoError(t, rc.EnableFullDuplex())
			w.Header().Set("Content-Length", "0")
			w.Header().Set("iothub-errorcode", "MessageTooLarge")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			require.NoError(t, rc.Flush())
			_, _ = io.Copy(io.Discard, r.Body) // until the connection ends
		}
		o := h.options()
		o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := h.network.DialContext(ctx, network, addr)
			return &stubbornConn{Conn: c, closed: make(chan struct{})}, err
		}
		r := h.start(t, o)
		m := &transport.Message{Body: make([]byte, 250_000)}
		r.onDone = func() {
			time.Sleep(time.Millisecond)            // gives net/http time to read
			copy(m.Body, make([]byte, len(m.Body))) // the race detector sees copy, but not clear
		}
		r.send(0, m)
		time.Sleep(time.Second)
		require.ErrorIs(t, r.results()[0], transport.TooLarge)
		r.close()
	})
}

// Answers that are not HTTP, or never end.
func TestMalformedAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if !strings.HasSuffix(r.URL.Path, "/events") {
				return false
			}
			c, _, err := w.(http.Hijacker).Hijack()
			require.NoError(t, err)
			_, _ = c.Write([]byte("SSH-2.0-OpenSSH_9.0\r\n\r\n"))
			_ = c.Close()
			return true
		}
		r := h.start(t, h.options())
		r.send(0, numbered(1)...)
		r.requireLoss(transport.Network)
	})
	bubble(t, func(t *testing.T, h *scripted) {
		h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			c, _, err := w.(http.Hijacker).Hijack()
			require.NoError(t, err)
			_, _ = c.Write([]byte("SSH-2.0-OpenSSH_9.0\r\n\r\n"))
			_ = c.Close()
			return true
		}
		_, err := h.dial(t, hubhttp.New(h.options()), h.creds(goodKey))
		require.ErrorIs(t, err, transport.Protocol)
		require.ErrorContains(t, err, "check host and port")
	})
	bubble(t, func(t *testing.T, h *scripted) {
		h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			w.Header().Set("X", strings.Repeat("x", 200_000))
			w.WriteHeader(204)
			return true
		}
		_, err := h.dial(t, hubhttp.New(h.options()), h.creds(goodKey))
		require.ErrorIs(t, err, transport.Protocol)
	})
	bubble(t, func(t *testing.T, h *scripted) {
		h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if strings.HasSuffix(r.URL.Path, "/events") {
				_, _ = w.Write(make([]byte, 10<<20))
				return true
			}
			return false
		}
		r := h.start(t, h.options())
		r.send(0, numbered(1)...)
		e := r.requireLoss(transport.Network)
		require.ErrorContains(t, e, "more than 256 KB")
	})
}

// A refusal counts by its status, however long its body is.
func TestALongRefusal(t *testing.T) {
	for _, row := range []struct {
		status int
		kind   transport.Kind
	}{{400, transport.Invalid}, {413, transport.TooLarge}, {503, transport.Unavailable}} {
		bubble(t, func(t *testing.T, h *scripted) {
			long := true
			h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				if !long || !strings.HasSuffix(r.URL.Path, "/events") {
					return false
				}
				w.WriteHeader(row.status)
				_, _ = w.Write(make([]byte, 10<<20))
				return true
			}
			r := h.start(t, h.options())
			for i := range 3 {
				r.send(i, numbered(1)...)
				synctest.Wait()
				require.ErrorIs(t, r.results()[uint16(i)], row.kind)
			}
			h.change(func() { long = false })
			r.send(3, numbered(1)...)
			synctest.Wait()
			require.Len(t, r.results(), 4)
			require.NoError(t, r.results()[3])
		})
	}
	bubble(t, func(t *testing.T, h *scripted) { // as the answer to a dial
		h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			w.WriteHeader(401)
			_, _ = w.Write(make([]byte, 10<<20))
			return true
		}
		_, err := h.dial(t, hubhttp.New(h.options()), h.creds(goodKey))
		require.ErrorIs(t, err, transport.Unauthorized)
	})
}

// The proof of a dial receives no cloud-to-device message and sends no message.
func TestDialProvesTheCredentials(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("stay", nil)
		h.start(t, h.options())
		require.Empty(t, h.Received())
		require.Zero(t, h.inbox[0].delivered)
		require.Len(t, h.requests, 1)
		require.Equal(t, "/devices/dev-1/messages/deviceBound/00000000-0000-0000-0000-000000000000/abandon",
			h.requests[0].path)
	})
	for _, row := range []struct {
		answer int // code, or status without a code
		kind   transport.Kind
		proves bool
	}{
		{204, 0, true}, {412002, 0, true}, {412, 0, true}, {404000, 0, true}, {404, 0, true}, {400004, 0, true},
		{403010, 0, true},
		{400, transport.Invalid, false}, {401002, transport.Unauthorized, false}, {404001, transport.NotFound, false},
		{401001, transport.NotFound, false},
		{403012, transport.Forbidden, false}, {403001, transport.Forbidden, false}, {429001, transport.Throttled, false},
		{503, transport.Unavailable, false},
		{404012, transport.Unavailable, false}, {405000, transport.Unsupported, false}, {302, transport.Protocol, false},
		{599, transport.Unavailable, false},
	} {
		t.Run(fmt.Sprint(row.answer), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
					w.Header().Set("Retry-After", "5")
					if row.answer > 1000 {
						refuse(w, row.answer, "")
					} else {
						w.WriteHeader(row.answer)
					}
					return true
				}
				_, err := h.dial(t, hubhttp.New(h.options()), h.creds(goodKey))
				if row.proves {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, row.kind)
				e := transport.Find(err)
				require.Equal(t, transport.ScopeConnection, e.Scope)
				require.Equal(t, transport.OpDial, e.Op)
				require.Equal(t, 5*time.Second, e.RetryAfter)
			})
		})
	}
	bubble(t, func(t *testing.T, h *scripted) {
		o := h.options()
		o.NoProof = true
		r, err := h.dial(t, hubhttp.New(o), h.creds(badKey))
		require.NoError(t, err)
		synctest.Wait()
		require.Empty(t, h.requests)
		require.Equal(t, 1, h.dialed())
		r.send(0, numbered(1)...)
		r.requireLoss(transport.Unauthorized)
	})
}

// Twin and methods are unsupported. A renewal only makes the next request use a new token.
func TestUnsupportedRequests(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		r := h.start(t, h.options())
		r.Do(&transport.Request{ID: 1, Op: transport.OpTwinGet})
		r.Do(&transport.Request{ID: 2, Op: transport.OpTwinPatch})
		r.Do(&transport.Request{ID: 3, Op: transport.OpSubscribe, Want: transport.FeatureMethods | transport.FeatureMessages})
		r.Do(&transport.Request{ID: 4, Op: transport.OpRenew})
		r.Do(&transport.Request{Op: transport.OpPing})
		r.Do(&transport.Request{Op: transport.OpRespond})
		for id := uint32(1); id <= 3; id++ {
			require.ErrorIs(t, r.replies[id], transport.Unsupported)
		}
		require.EqualError(t, r.replies[3],
			"http subscribe: unsupported: direct methods are not available over HTTPS")
		require.NoError(t, r.replies[4])
		require.Zero(t, r.Info().Expires)
		time.Sleep(time.Second)
		r.send(0, numbered(1)...)
		synctest.Wait()
		require.NotEqual(t, h.requests[0].header.Get("Authorization"), h.requests[1].header.Get("Authorization"))
	})
}
