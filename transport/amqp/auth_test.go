package amqp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestTokensAreRefused(t *testing.T) {
	for status, kind := range map[int]transport.Kind{
		400: transport.Invalid, 401: transport.Unauthorized, 403: transport.Quota, 404: transport.NotFound,
		408: transport.Timeout, 410: transport.NotFound,
		429: transport.Throttled, 500: transport.Unavailable, 502: transport.Unavailable, 503: transport.Unavailable,
		504: transport.Timeout,
		599: transport.Unavailable, 418: transport.Unknown,
	} {
		bubble(t, func(t *testing.T, h *hub) {
			h.inject(fault.Fault{Kind: fault.RefuseToken, Status: status})
			_, err := tryStart(t, amqp.New(h.options()), h.CredsWith(t, ""))
			e := transport.Find(err)
			require.Equal(t, kind, e.Kind, "%d: %v", status, err)
			require.Equal(t, transport.ScopeConnection, e.Scope)
			require.Equal(t, transport.OpDial, e.Op)
			said, ok := errors.AsType[*amqp.TokenError](err)
			require.True(t, ok)
			require.Equal(t, status, said.Status)
			synctest.Wait()
			require.Zero(t, h.Connections(""))
		})
	}
}

func TestTokensAreLate(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		h.inject(fault.Fault{Kind: fault.SlowToken, Delay: 15 * time.Second})
		began := time.Now()
		h.dev1(t, h.options()).requireSends("x")
		require.InDelta(t, 15, time.Since(began).Seconds(), 0.2)

		h.inject(fault.Fault{Kind: fault.SwallowToken})
		began = time.Now()
		_, err := tryStart(t, amqp.New(h.options()), h.CredsWith(t, ""))
		require.Equal(t, transport.Timeout, transport.KindOf(err), "%v", err)
		require.Equal(t, 20*time.Second, time.Since(began))
	})
}

// A renewal leaves the connection and all links unchanged.
func TestATokenIsRenewedInPlace(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		r.subscribe(1)
		require.Equal(t, time.Hour, time.Until(r.Info().Expires).Round(time.Second))
		for i := range 20 {
			time.Sleep(50 * time.Minute)
			reply := r.ask(&transport.Request{ID: uint32(10 + i), Op: transport.OpRenew})
			require.NoError(t, reply.Err)
			require.InDelta(t, time.Hour.Seconds(), time.Until(reply.Expires).Seconds(), 2)
		}
		r.requireSends("x")
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("down")}))
		time.Sleep(time.Second)
		require.Equal(t, []string{"down"}, r.sink.Bodies())
		require.EqualValues(t, 1, h.dials.Load())
		require.Equal(t, 1, h.Connections("dev-1"))
	})
}

// A refused renewal fails only the request. After the loss of a token link a renewal attaches
// another one.
func TestARenewalFails(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		h.inject(fault.Fault{Kind: fault.RefuseToken, Status: 503})
		err := r.ask(&transport.Request{ID: 1, Op: transport.OpRenew}).Err
		e := transport.Find(err)
		require.Equal(t, transport.Unavailable, e.Kind)
		require.Equal(t, transport.ScopeOperation, e.Scope)
		require.Equal(t, transport.OpRenew, e.Op)
		r.requireSends("x")

		require.Equal(t, 1, h.DetachLinks("dev-1", fault.LinkCBSSender,
			hubdata.AMQPError{Condition: "amqp:link:detach-forced"}))
		time.Sleep(time.Second)
		require.NoError(t, r.ask(&transport.Request{ID: 2, Op: transport.OpRenew}).Err)
		require.Equal(t, 1, h.DetachLinks("dev-1", fault.LinkCBSReceiver,
			hubdata.AMQPError{Condition: "amqp:link:detach-forced"}))
		time.Sleep(time.Second)
		require.NoError(t, r.ask(&transport.Request{ID: 3, Op: transport.OpRenew}).Err)
		r.requireSends("y")
		require.EqualValues(t, 1, h.dials.Load())
	})
}

// A token that is larger than the hub takes fails its device alone: it is not sent, so the tokens
// of others stay in flight.
func TestATokenThatIsTooLargeFailsAlone(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux := amqp.NewMux(h.options())
		start(t, mux, h.CredsWith(t, ""))
		slow := h.inject(fault.Fault{Kind: fault.SlowToken, Device: "slow", Delay: 10 * time.Second, Times: -1})
		joined := make(chan error, 1)
		creds := h.device(t, "slow")
		go func() {
			_, err := tryStart(t, mux, creds)
			joined <- err
		}()
		time.Sleep(time.Second)
		large := *h.device(t, "large")
		large.Sign, large.Token = nil, transport.FixedToken("SharedAccessSignature "+strings.Repeat("x", 64<<10))
		_, err := tryStart(t, mux, &large)
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, "token has 65")
		require.ErrorContains(t, err, "takes 65536 at most")
		require.NotContains(t, err.Error(), "xxx")
		require.NoError(t, <-joined)
		require.Equal(t, 1, slow.Fired())
	})
}

// When the links for tokens are lost twice with a condition, that is the reason of a token that was
// alone on them. While several are in flight it says nothing about most of them.
func TestAConditionAboutATokenIsNotThatOfOthers(t *testing.T) {
	for _, devices := range []int{1, 2} {
		bubble(t, func(t *testing.T, h *hub) {
			mux := amqp.NewMux(h.options())
			start(t, mux, h.CredsWith(t, ""))
			h.inject(fault.Fault{Kind: fault.SwallowToken, Times: -1})
			failed := make(chan error, devices)
			for i := range devices {
				creds := h.device(t, fmt.Sprintf("slow-%d", i))
				go func() {
					_, err := tryStart(t, mux, creds)
					failed <- err
				}()
			}
			for range 2 {
				time.Sleep(time.Second)
				require.Equal(t, 1, h.DetachLinks("", fault.LinkCBSSender,
					hubdata.AMQPError{Condition: "amqp:link:message-size-exceeded"}))
			}
			for range devices {
				err := <-failed
				require.ErrorContains(t, err, "message-size-exceeded")
				require.Equal(t, devices == 1, errors.Is(err, transport.TooLarge), "%v", err)
				require.Equal(t, devices > 1, errors.Is(err, transport.Unavailable), "%v", err)
			}
		})
	}
}

// A renewal whose token source calls runtime.Goexit, or panics with an error whose methods panic,
// is replied to as well.
func TestARenewalWhoseTokenSourceExits(t *testing.T) {
	for text, exit := range map[string]func(){
		"callback Credentials.Sign ended its goroutine (runtime.Goexit)": runtime.Goexit,
		"callback Credentials.Sign panicked: an error whose Error":       func() { panic((*os.PathError)(nil)) },
	} {
		testARenewalWhoseTokenSource(t, exit, text)
	}
}

func testARenewalWhoseTokenSource(t *testing.T, exits func(), text string) {
	bubble(t, func(t *testing.T, h *hub) {
		creds := *h.CredsWith(t, "")
		sign := creds.Sign
		var armed atomic.Bool
		creds.Sign = func(ctx context.Context, text []byte) ([]byte, error) {
			if armed.Swap(false) {
				exits()
			}
			return sign(ctx, text)
		}
		r := start(t, amqp.New(h.options()), &creds)
		armed.Store(true)
		err := r.ask(&transport.Request{ID: 1, Op: transport.OpRenew}).Err
		require.Equal(t, transport.Unauthorized, transport.KindOf(err), "%v", err)
		require.ErrorContains(t, err, text)
		require.NoError(t, r.ask(&transport.Request{ID: 2, Op: transport.OpRenew}).Err)
		r.requireSends("x")
	})
}

// A renewal whose token source hangs fails in time, and the next one may succeed.
func TestARenewalWhoseTokenSourceHangs(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		creds := *h.CredsWith(t, "")
		sign := creds.Sign
		var armed atomic.Bool
		creds.Sign = func(ctx context.Context, text []byte) ([]byte, error) {
			if armed.Swap(false) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return sign(ctx, text)
		}
		r := start(t, amqp.New(h.options()), &creds)
		armed.Store(true)
		began := time.Now()
		err := r.ask(&transport.Request{ID: 1, Op: transport.OpRenew}).Err
		require.InDelta(t, 20, time.Since(began).Seconds(), 0.1)
		require.ErrorIs(t, err, transport.Timeout)
		require.ErrorContains(t, err, "the token source")
		require.True(t, errfilter.Retryable(err))
		require.NoError(t, r.ask(&transport.Request{ID: 2, Op: transport.OpRenew}).Err)
		r.requireSends("x")
	})
}

// Renewals that wait in vain for credit give up the token links, so a later one succeeds. Each of
// them counts: those that come one after the other have little time left when it is their turn.
func TestTokenLinksWithoutCreditAreGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		const n = 15
		mux := amqp.NewMux(h.options())
		var all []*running
		for i := range n {
			own := h.device(t, fmt.Sprintf("fleet-%d", i))
			creds := *own
			creds.Sign, creds.Token = nil, func(ctx context.Context) (transport.Token, error) {
				time.Sleep(time.Millisecond)
				return own.NewToken(ctx)
			}
			all = append(all, start(t, mux, &creds))
		}
		require.Equal(t, 1, h.DetachLinks("", fault.LinkCBSSender, hubdata.AMQPError{}))
		withheld := h.inject(fault.Fault{Kind: fault.WithholdCredit, Link: fault.LinkCBSSender, Times: 2})
		for _, r := range all {
			r.Do(&transport.Request{ID: 1, Op: transport.OpRenew})
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		failed := 0
		for i, r := range all {
			reply, ok := r.sink.ReplyTo(1)
			require.True(t, ok)
			if reply.Err == nil {
				continue
			}
			failed++
			require.ErrorIs(t, reply.Err, transport.Timeout)
			require.ErrorContains(t, reply.Err, "the hub did not answer")
			require.NoError(t, r.ask(&transport.Request{ID: 2, Op: transport.OpRenew}).Err, "device %d", i)
		}
		require.Equal(t, 2, withheld.Fired())
		require.Equal(t, 11, failed)
		require.EqualValues(t, 1, h.dials.Load())
	})
}

// Without a renewal the hub detaches the links, and the session ends with its condition.
func TestATokenRunsOut(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		r.subscribe(1)
		r.requireEnd(transport.Unauthorized)
		require.EqualValues(t, 1, h.dials.Load())
	})
}

func TestSASLPlain(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		o.Auth = amqp.AuthPlain
		r := h.dev1(t, o)
		r.requireSends("x")
		require.Equal(t, transport.Unsupported, transport.KindOf(r.ask(&transport.Request{ID: 1, Op: transport.OpRenew}).Err),
			"only a new connection takes a new token")
		require.False(t, r.Info().Expires.IsZero())
		require.Zero(t, h.Links("", fault.LinkCBSSender))
		r.requireEnd(transport.Unauthorized) // when the token has expired

		_, err := tryStart(t, amqp.New(o), h.CredsWith(t, hubfixture.WrongKey))
		require.Equal(t, transport.Unauthorized, transport.KindOf(err))
		said, ok := errors.AsType[*amqp.SASLError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, 1, said.Code)
		for code, kind := range map[byte]transport.Kind{2: transport.Unavailable, 3: transport.Forbidden,
			4: transport.Unavailable} {
			h.inject(fault.Fault{Kind: fault.RefuseSASL, Code: code})
			_, err := tryStart(t, amqp.New(o), h.CredsWith(t, ""))
			require.Equal(t, kind, transport.KindOf(err), "%v", err)
		}
	})
}

func TestCertificates(t *testing.T) {
	for _, auth := range []amqp.Auth{amqp.AuthDefault, amqp.AuthExternal} {
		t.Run(auth.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				cert := testbroker.NewClientCert("dev-x", time.Time{}, time.Time{})
				_, err := h.AddDeviceX509("dev-x", testbroker.Thumbprint(cert.Leaf))
				require.NoError(t, err)
				creds := &transport.Credentials{Host: h.HostName(), DeviceID: "dev-x"}
				o := &amqp.Options{Auth: auth, Network: netopt.Options{Dial: h.Dial(testbroker.PortAMQPS), TLS: h.ClientTLS()}}
				_, err = tryStart(t, amqp.New(o), creds)
				require.Equal(t, transport.Invalid, transport.KindOf(err))
				require.ErrorContains(t, err, "Certificate")
				o.Network.Certificate = func(context.Context) (*tls.Certificate, error) { return &cert, nil }
				r := start(t, amqp.New(o), creds)
				r.requireSends("x")
				r.subscribe(1)
				require.Equal(t, cert.Leaf.NotAfter, r.Info().Expires)
				require.Equal(t, "dev-x", h.Messages()[0].DeviceID)
				require.Zero(t, h.Links("", fault.LinkCBSSender))
			})
		})
	}
}

// A broker with the addresses of the options: no token is put.
func TestABrokerWithItsOwnAddresses(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		o.Addresses = &amqp.Addresses{Telemetry: "/devices/{device}/messages/events",
			Commands: "/devices/{device}/messages/devicebound"}
		creds := h.brokered(t, &transport.Credentials{Host: h.HostName(), DeviceID: "dev-1"})
		for name, tr := range map[string]transport.Transport{"alone": amqp.New(o), "shared": amqp.NewMux(o)} {
			r := start(t, tr, creds)
			require.Zero(t, r.Info().MaxSize)
			r.requireSends(name)
			r.subscribe(1)
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("down")}))
			time.Sleep(time.Second)
			require.Equal(t, []string{"down"}, r.sink.Bodies())
			r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Ref(0)})
			require.Error(t, r.outcome(strings.Repeat("x", 2<<20), time.Second), "more than the link takes")
			r.requireSends("after")
			r.cancel()
			<-r.over
		}
		o.Addresses.Commands = ""
		r := start(t, amqp.New(o), creds)
		require.Equal(t, transport.Unsupported, transport.KindOf(r.ask(&transport.Request{ID: 1, Op: transport.OpSubscribe,
			Want: transport.FeatureMessages}).Err))
	})
}

// A Mux with Addresses has one connection, so its devices have one user name.
func TestADeviceWithAnotherUserNameNeedsAnotherMux(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		o.Addresses = &amqp.Addresses{Telemetry: "/devices/{device}/messages/events"}
		mux := amqp.NewMux(o)
		creds := h.brokered(t, h.CredsWith(t, ""))
		first := start(t, mux, creds)
		other := *creds
		other.UserName = "dev-2@sas.hub"
		_, err := tryStart(t, mux, &other)
		require.Equal(t, transport.Invalid, transport.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "give the device another Mux")
		other.UserName, other.Token = "", nil // it would send with the first one's rights
		_, err = tryStart(t, mux, &other)
		require.ErrorContains(t, err, "give the device another Mux")
		first.requireSends("x")
		require.EqualValues(t, 1, h.dials.Load())
	})
}

func TestAHubMakesUserNamesItself(t *testing.T) {
	for _, tr := range []transport.Transport{amqp.New(nil), amqp.NewMux(nil)} {
		_, err := tr.Dial(t.Context(), &transport.Config{Creds: &transport.Credentials{Host: "h", DeviceID: "d",
			UserName: "u", Token: transport.FixedToken("secret")}})
		require.Equal(t, transport.Invalid, transport.KindOf(err))
		require.ErrorContains(t, err, "UserName is set, and a hub makes its own")
	}
}

// requireEach sends the messages together. It requires that those without a text in wants arrive,
// and that the others are refused alone, with that text.
func (r *running) requireEach(h *hub, messages []*transport.Message, wants []string) {
	r.t.Helper()
	items := make([]transport.Item, len(messages))
	taken := len(h.Messages())
	for i, m := range messages {
		items[i] = transport.Item{Tag: uint16(i), Msg: m}
	}
	r.forget()
	r.Send(items)
	time.Sleep(time.Second)
	results := r.sink.AllResults()
	require.Len(r.t, results, len(wants))
	for _, result := range results {
		if want := wants[result.Tag]; want == "" {
			require.NoError(r.t, result.Err)
			taken++
		} else {
			require.ErrorIs(r.t, result.Err, transport.Unsupported)
			require.ErrorContains(r.t, result.Err, want)
		}
	}
	require.Len(r.t, h.Messages(), taken)
}

// A message with a field that has no place is refused alone, also within a batch.
func TestFieldsOfMQTTAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := start(t, amqp.New(h.options()), h.CredsWith(t, ""))
		r.requireEach(h, []*transport.Message{{Body: []byte("0")}, {Topic: "t"}, {Body: []byte("2"), AtMostOnce: true},
			{Retain: true}, {ResponseTopic: "r"}, {Output: "o"}, {System: &transport.SystemProperties{Schema: "s"}}},
			[]string{"", "message Topic has no place over AMQP", "", "message Retain", "message ResponseTopic", "", ""})
	})
}

// A broker that is no hub has To and UserID alone.
func TestFieldsOfAHubAreRefusedForOtherBrokers(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		o.Addresses = &amqp.Addresses{Telemetry: "/devices/{device}/messages/events"}
		r := start(t, amqp.New(o), h.brokered(t, &transport.Credentials{Host: h.HostName(), DeviceID: "dev-1"}))
		messages := []*transport.Message{{System: &transport.SystemProperties{To: "t", UserID: "u"}}, {Output: "o"}}
		wants := []string{"", "message Output has no place over AMQP to this peer"}
		for name, p := range map[string]*transport.SystemProperties{
			"Schema": {Schema: "x"}, "InterfaceID": {InterfaceID: "x"}, "ConnectionDeviceID": {ConnectionDeviceID: "x"},
			"ConnectionModuleID": {ConnectionModuleID: "x"}, "DiagnosticID": {DiagnosticID: "x"},
			"DiagnosticContext": {DiagnosticContext: "x"},
		} {
			messages = append(messages, &transport.Message{System: p})
			wants = append(wants, "message System."+name+" has no place over AMQP")
		}
		r.requireEach(h, messages, wants)
		sent := h.Messages()[0]
		require.Contains(t, sent.System, hubdata.Property{Name: "$.to", Value: "t"})
		require.Contains(t, sent.System, hubdata.Property{Name: "$.uid", Value: "u"})
	})
}

func TestWrongOptions(t *testing.T) {
	for field, o := range map[string]amqp.Options{
		"IdleTimeout":         {IdleTimeout: time.Second},
		"WriteTimeout":        {Network: netopt.Options{WriteTimeout: -1}},
		"OperationTimeout":    {OperationTimeout: -1},
		"CreditTimeout":       {CreditTimeout: -1},
		"Batch":               {Batch: 501},
		"Devices":             {Devices: -1},
		"Parallel":            {Parallel: 1001},
		"Auth":                {Auth: 99},
		"Addresses":           {Addresses: &amqp.Addresses{}},
		"Auth is CBS":         {Auth: amqp.AuthCBS, Addresses: &amqp.Addresses{Telemetry: "q"}},
		"UserName":            {Auth: amqp.AuthPlain, Addresses: &amqp.Addresses{Telemetry: "q"}},
		"placeholder":         {Addresses: &amqp.Addresses{Telemetry: "q/{Device}"}},
		"Addresses.Commands":  {Addresses: &amqp.Addresses{Telemetry: "q", Commands: "{module}"}},
		"ModelID":             {ModelID: "x"},
		"ProductInfo":         {Network: netopt.Options{ProductInfo: "\xff"}},
		"Addresses.Telemetry": {Addresses: &amqp.Addresses{Telemetry: strings.Repeat("x", 2000)}},
		"Addr":                {Network: netopt.Options{Addr: "nowhere"}},
		"Certificate": {Network: netopt.Options{Plaintext: true,
			Certificate: func(context.Context) (*tls.Certificate, error) { return nil, nil }}},
	} {
		for _, tr := range []transport.Transport{amqp.New(&o), amqp.NewMux(&o)} {
			_, err := tr.Dial(t.Context(), &transport.Config{Creds: &transport.Credentials{Host: "h", DeviceID: "d"}})
			require.Equal(t, transport.Invalid, transport.KindOf(err), "%s: %v", field, err)
			require.ErrorContains(t, err, field)
		}
	}
}

// A malformed frame after the open is retried; a peer that never spoke AMQP is not.
func TestGarbageAfterTheOpen(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		h.inject(fault.Fault{Kind: fault.GarbageOnConnect})
		_, err := tryStart(t, amqp.New(h.options()), h.CredsWith(t, ""))
		require.Equal(t, transport.Protocol, transport.KindOf(err), "%v", err)
		require.True(t, errfilter.Retryable(err))
	})
}
