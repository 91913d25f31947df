package engine

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// field reads a length-prefixed field of a CONNECT.
func field(b []byte) (string, []byte) {
	n := int(b[0])<<8 | int(b[1])
	return string(b[2 : 2+n]), b[2+n:]
}

func TestTheFieldsOfCONNECT(t *testing.T) {
	will := &transport.Message{ID: "last words", Body: []byte("gone")}
	for name, c := range map[string]struct {
		opt    Options
		module string
		token  bool
		flags  byte
		alive  byte
		user   string
	}{
		"defaults": {Options{}, "", true, 0xC0, 180,
			`hub.example.test/dev-1/?api-version=2021-04-12&DeviceClientType=Hubline`},
		"module, no token": {Options{}, "mod", false, 0x80, 180,
			`hub.example.test/dev-1/mod/?api-version=2021-04-12&DeviceClientType=Hubline`},
		"clean, product": {Options{CleanSession: true, ProductInfo: "Thermo/1"}, "", true, 0xC2, 180,
			`hub.example.test/dev-1/?api-version=2021-04-12&DeviceClientType=Hubline%20Thermo%2F1`},
		"model, keep-alive": {Options{ModelID: "dtmi:a;1", KeepAlive: 200 * time.Second}, "", true, 0xC0, 200,
			`hub.example.test/dev-1/?api-version=2021-04-12&DeviceClientType=Hubline&model-id=dtmi%3Aa%3B1`},
		"keep-alive of a minute": {Options{KeepAlive: time.Minute}, "", true, 0xC0, 60,
			`hub.example.test/dev-1/?api-version=2021-04-12&DeviceClientType=Hubline`},
		"will with QoS 1": {Options{Will: will}, "", true, 0xCC, 180,
			`hub.example.test/dev-1/?api-version=2021-04-12&DeviceClientType=Hubline`},
		"in a fixed buffer": {Options{Will: will, WriteBuffer: 512}, "", true, 0xCC, 180,
			`hub.example.test/dev-1/?api-version=2021-04-12&DeviceClientType=Hubline`},
		"will, fixed, clean": {Options{Will: will, WriteBuffer: 512, CleanSession: true}, "", true, 0xCE, 180,
			`hub.example.test/dev-1/?api-version=2021-04-12&DeviceClientType=Hubline`},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h := newHub(t)
			creds := testCreds(t)
			creds.ModuleID = c.module
			if !c.token {
				creds.Sign = nil
			}
			token, err := creds.NewToken(t.Context())
			require.NoError(t, err)
			var hello got
			go func() {
				var l *link
				l, hello = h.accept()
				l.Send(0x20, 2, 1, 0)
				_, _ = l.Drain()
			}()
			ctx, cancel := context.WithCancel(t.Context())
			tr := New(h.dial, &c.opt)
			s, err := tr.Dial(ctx, &transport.Config{Creds: creds, Sink: new(sink)})
			require.NoError(t, err)
			require.True(t, token.Expires.Equal(s.Info().Expires))
			require.Equal(t, transport.MaxMessageSize, s.Info().MaxSize)

			require.Equal(t, "\x00\x04MQTT\x04"+string([]byte{c.flags, 0, c.alive}), string(hello.Body[:10]))
			id, rest := field(hello.Body[10:])
			require.Equal(t, strings.TrimSuffix("dev-1/"+c.module, "/"), id)
			if c.opt.Will != nil {
				var topic, body string
				topic, rest = field(rest)
				body, rest = field(rest)
				require.Equal(t, "devices/dev-1/messages/events/%24.mid=last%20words", topic)
				require.Equal(t, "gone", body)
			}
			user, rest := field(rest)
			require.Equal(t, c.user, user)
			if c.token {
				var password string
				password, rest = field(rest)
				require.Equal(t, token.Text.Reveal(), password)
			}
			require.Empty(t, rest)
			require.NotContains(t, string(tr.out[:cap(tr.out)]), "SharedAccessSignature",
				"the token does not stay in the buffer")
			cancel()
			require.Error(t, s.Run(ctx))
		})
	}
}

func TestCredentialsWithAFixedTokenDoNotExpire(t *testing.T) {
	s := newSession(New(nil, nil), &transport.Config{}, transport.Token{Expires: time.Now(), Fixed: true}, nil,
		nil)
	require.True(t, s.Info().Expires.IsZero())
}

func TestEveryRefusalHasItsKind(t *testing.T) {
	for code := 1; code < 256; code++ {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			_, _, _, _, err := dialed(t, New(h.dial, nil), func() {
				l, _ := h.accept()
				l.Send(0x20, 2, 0, byte(code))
			})
			e := transport.Find(err)
			require.Equal(t, mqttwire.ConnackMeaning(byte(code)).Kind, e.Kind)
			require.Equal(t, transport.ScopeConnection, e.Scope)
			require.Equal(t, transport.OpDial, e.Op)
			refusal, ok := errors.AsType[*ConnackError](err)
			require.True(t, ok)
			require.EqualValues(t, code, refusal.Code)
		})
	}
}

func TestAnInvalidCONNACK(t *testing.T) {
	for name, c := range map[string]struct {
		bytes string
		kind  transport.Kind
		text  string
	}{
		"nothing":                {"", transport.Network, "the hub closed the connection"},
		"half a CONNACK":         {"\x20\x02\x00", transport.Network, "the hub closed the connection"},
		"HTTP":                   {"HTTP/1.1 400 Bad Request\r\n\r\n", transport.Protocol, "check host and port"},
		"a greeting of SSH":      {"SSH-2.0-x\r\n", transport.Protocol, "check host and port"},
		"a TLS alert":            {"\x15\x03\x01\x00\x02\x02\x46", transport.Protocol, "check host and port"},
		"a PUBLISH":              {"\x30\x04\x00\x01ax", transport.Protocol, "not a CONNACK"},
		"a PUBLISH of 256 MB":    {"\x30\xff\xff\xff\x7f", transport.Protocol, "not a CONNACK"},
		"a long CONNACK":         {"\x20\x03\x00\x00\x00", transport.Protocol, "not a CONNACK"},
		"a CONNACK of 256 MB":    {"\x20\xff\xff\xff\x7f\x00\x00", transport.Protocol, "not a CONNACK"},
		"MQTT 5 only":            {"\x20\x03\x00\x84\x00", transport.Unsupported, "takes MQTT 5 only"},
		"MQTT 5 only, a reason":  {"\x20\x90\x01\x00\x84\x8d\x01", transport.Unsupported, "takes MQTT 5 only"},
		"a refusal by MQTT 5":    {"\x20\x03\x00\x87\x00", transport.Protocol, "with a CONNACK of MQTT 5"},
		"a CONNACK with flags":   {"\x20\x02\x02\x00", transport.Protocol, "reserved flags"},
		"a length of five bytes": {"\x20\xff\xff\xff\xff\x01", transport.Protocol, "4 bytes"},
	} {
		for size, o := range map[int]*Options{100: nil, 1: {ReadBuffer: 64, WriteBuffer: 512}} {
			testkit.Run(t, name, func(t *testing.T) {
				h := newHub(t)
				_, _, _, _, err := dialed(t, New(h.dial, o), func() {
					l, _ := h.accept()
					for rest := []byte(c.bytes); len(rest) > 0; rest = rest[min(size, len(rest)):] {
						_, _ = l.Write(rest[:min(size, len(rest))])
						time.Sleep(time.Millisecond)
					}
					_ = l.Close()
				})
				require.ErrorIs(t, err, c.kind)
				require.ErrorContains(t, err, c.text)
			})
		}
	}
}

// The CONNACK may arrive in one segment with other packets, or in single bytes.
func TestTheCONNACKMayComeWithOthersOrInBits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		tr := New(h.dial, nil)
		stream := append([]byte{0x20, 2, 0, 0}, publishBytes("devices/dev-1/messages/devicebound/", 1, "early")...)
		for _, size := range []int{1, 2, 3, 5, 7, len(stream)} {
			s, k, ctx, cancel, err := dialed(t, tr, func() {
				l, _ := h.accept()
				go func() {
					for rest := stream; len(rest) > 0; {
						n := min(size, len(rest))
						_, _ = l.Write(rest[:n])
						rest = rest[n:]
						time.Sleep(time.Millisecond)
					}
					_, _ = l.Drain()
				}()
			})
			require.NoError(t, err)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Empty(t, k.Messages, "not before Run")
			ran := make(chan error)
			go func() { ran <- s.Run(ctx) }()
			time.Sleep(time.Second)
			synctest.Wait()
			require.Len(t, k.Messages, 1, "%d at a time", size)
			require.Equal(t, "early", string(k.Messages[0].Body))
			cancel()
			require.Error(t, <-ran)
		}
	})
}

func TestADialEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		tr := New(h.dial, nil)
		for range 2 {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, errPulled)
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				l, _ := h.accept()
				_, _ = l.Drain()
			}()
			begun := time.Now()
			_, err := tr.Dial(ctx, &transport.Config{Creds: testCreds(t), Sink: new(sink)})
			cancel()
			require.ErrorIs(t, err, errPulled)
			require.Equal(t, 3*time.Second, time.Since(begun))
			<-drained // Dial has closed its connection
		}
	})
}

// closedConn is a connection whose peer closed before CONNECT; reads return the peer's error.
type closedConn struct {
	Conn
	last error
}

func (m *closedConn) Write([]byte) (int, error)       { return 0, errPulled }
func (m *closedConn) Read([]byte) (int, error)        { return 0, m.last }
func (m *closedConn) SetReadDeadline(time.Time) error { return nil }
func (m *closedConn) Close() error                    { return nil }

// explainingConn is a closedConn with a method Explain.
type explainingConn struct{ closedConn }

func (explainingConn) Explain(err error) error {
	return &transport.Error{Kind: transport.Forbidden, Err: err}
}

type timeoutError struct{ error }

func (timeoutError) Timeout() bool   { return true }
func (e timeoutError) Unwrap() error { return e.error }

func TestAFailedDialHasItsCause(t *testing.T) {
	alert, leak := errors.New("alert"), errors.New("sig=abc1")
	conn := func(c Conn) Dial {
		return func(context.Context, *transport.Credentials) (Conn, error) { return c, nil }
	}
	fails := func(err error) Dial {
		return func(context.Context, *transport.Credentials) (Conn, error) { return nil, err }
	}
	for name, c := range map[string]struct {
		dial  Dial
		kind  transport.Kind
		cause error
	}{
		"the radio is off": {fails(errPulled), transport.Network, errPulled},
		"no answer":        {fails(timeoutError{errPulled}), transport.Timeout, errPulled},
		"a kind of the board's": {fails(&transport.Error{Kind: transport.Untrusted, Op: transport.OpSend,
			Err: errPulled}), transport.Untrusted, errPulled},
		"a secret": {fails(leak), transport.Network, leak},
		"a secret with a kind": {fails(&transport.Error{Kind: transport.Forbidden, Err: leak}), transport.Forbidden,
			leak},
		"CONNECT is not taken":       {conn(&closedConn{last: io.EOF}), transport.Network, errPulled},
		"CONNECT is not taken, why":  {conn(&closedConn{last: alert}), transport.Network, alert},
		"CONNECT is not taken, dead": {conn(&closedConn{last: timeoutError{alert}}), transport.Network, errPulled},
		"the connection explains it": {conn(&explainingConn{closedConn{last: alert}}), transport.Forbidden, alert},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.dial, nil).Dial(t.Context(), &transport.Config{Creds: testCreds(t), Sink: new(sink)})
			require.ErrorIs(t, err, c.kind)
			require.ErrorIs(t, err, c.cause)
			e := transport.Find(err)
			require.Equal(t, transport.ScopeConnection, e.Scope)
			require.Equal(t, transport.OpDial, e.Op)
			require.Equal(t, "mqtt", e.Proto)
			require.NotContains(t, err.Error(), "abc1")
		})
	}
}

func TestWrongOptionsAndCredentialsAreInvalid(t *testing.T) {
	never := func(context.Context, *transport.Credentials) (Conn, error) { panic("it dials") }
	long := &transport.Message{Body: make([]byte, 65536)}
	for text, o := range map[string]*Options{
		"KeepAlive is":               {KeepAlive: 1500 * time.Millisecond},
		"PingTimeout is negative":    {PingTimeout: -1},
		`ModelID "Thermostat" is no`: {ModelID: "Thermostat"},
		"ModelID has 4097 bytes":     {ModelID: "dtmi:" + strings.Repeat("x", 4092)},
		"ProductInfo has 4097 bytes": {ProductInfo: strings.Repeat("x", 4097)},
		"ReadBuffer is 63":           {ReadBuffer: 63},
		"WriteBuffer is -1":          {WriteBuffer: -1},
		"CONNECT has":                {WriteBuffer: 64},
		"Will has a body of 65536":   {Will: long},
		"Will: send: invalid":        {Will: &transport.Message{ID: "\xff"}},
		"CONNECT cannot be sent": {Will: &transport.Message{Properties: []transport.Property{{Name: "p",
			Value: strings.Repeat("#", 22_000)}}}},
	} {
		tr := New(never, o)
		for range 2 {
			_, err := tr.Dial(t.Context(), &transport.Config{Creds: testCreds(t), Sink: new(sink)})
			require.ErrorIs(t, err, transport.Invalid, text)
			require.ErrorContains(t, err, text)
			require.Equal(t, transport.ScopeConnection, transport.Find(err).Scope)
		}
	}
	for _, d := range []time.Duration{-time.Second, 900 * time.Millisecond, 65536 * time.Second} {
		_, err := New(never, &Options{KeepAlive: d}).Dial(t.Context(), &transport.Config{Creds: testCreds(t),
			Sink: new(sink)})
		require.ErrorContains(t, err, "; give whole seconds from 1s to 65535s", "%v", d)
	}
	_, err := New(nil, nil).Dial(t.Context(), &transport.Config{Creds: testCreds(t), Sink: new(sink)})
	require.ErrorIs(t, err, transport.Invalid)
	_, err = New(never, nil).Dial(t.Context(), &transport.Config{Creds: &transport.Credentials{Host: "https://x"},
		Sink: new(sink)})
	require.ErrorIs(t, err, transport.Invalid)
	creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1",
		Token: func(context.Context) (transport.Token, error) {
			return transport.Token{Text: transport.Hide(strings.Repeat("x", 65536))}, nil
		}}
	_, err = New(never, nil).Dial(t.Context(), &transport.Config{Creds: creds, Sink: new(sink)})
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "65536 bytes")
}

// Fixed buffers are allocated by New and stay the same over connections.
func TestFixedBuffersSurviveReconnects(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		tr := New(h.dial, &Options{ReadBuffer: 300, WriteBuffer: 600})
		in, out := &tr.in[0], &tr.out[:1][0]
		for range 3 {
			r, l := start(t, h, tr)
			r.send(strings.Repeat("x", 2000))
			l.Expect(0x32)
			l.Puback(1)
			synctest.Wait()
			require.Equal(t, []uint16{0}, r.sink.Tags())
			require.NoError(t, l.Close())
			<-r.ran
			require.Same(t, in, &tr.in[0])
			require.Same(t, out, &tr.out[:1][0])
			require.Len(t, tr.in, 300)
			require.Equal(t, 600, cap(tr.out))
		}
	})
}
