package nexthub_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
	"github.com/hubline-iot/hubline/transport/mqtt/paho"
)

func TestConnectHasANonceForEachAttempt(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		c := client(t, h, &nexthub.Hub{}, nil)
		open(t, c)
		seen := map[string]bool{}
		for range 5 {
			s, ok := h.Session("dev-1")
			require.True(t, ok)
			require.Equal(t, "dev-1", s.ClientID)
			require.EqualValues(t, 5, s.Version)
			require.False(t, s.CleanStart)
			require.Equal(t, time.Hour, s.Expiry)
			require.Equal(t, len(seen) > 0, s.Present)
			nonce, agent, ok := nextwire.ParseUserName(s.UserName)
			require.True(t, ok, s.UserName)
			require.Equal(t, "Hubline", agent)
			require.Regexp(t, "^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$", s.Nonce)
			require.Equal(t, s.Nonce, hex.EncodeToString(nonce[:]))
			require.Len(t, s.Filters, 1)
			require.Equal(t, "ih/dev-1/dev/#", s.Filters[0].Filter)
			require.EqualValues(t, 1, s.Filters[0].QoS)
			seen[s.Nonce] = true
			h.Drop("dev-1")
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		require.Len(t, seen, 5)
	})
}

// A program may have options of MQTT 5 besides. Nothing of them is dropped in silence.
func TestOptionsOfMQTT5(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{KeepAlive: 7 * time.Second}, func(t *testing.T, h *testbroker.Hub) {
		o := options(h, &nexthub.Hub{})
		o.Protocol = mqtt.MQTT5(&mqtt.MQTT5Options{SessionExpiry: 2 * time.Hour, ReceiveMaximum: 9,
			UserProperties: []transport.Property{{Name: "site", Value: "north"}}})
		c, err := device.New(creds(), mqtt.New(o), nil)
		require.NoError(t, err)
		defer c.Close()
		open(t, c)
		s, _ := h.Session("dev-1")
		require.Equal(t, 2*time.Hour, s.Expiry)
		require.Equal(t, 7*time.Second, s.KeepAlive)
		require.Contains(t, s.Properties, hubdata.Property{Name: "site", Value: "north"})
		require.Contains(t, s.Properties, hubdata.Property{Name: "receive-maximum", Value: "9"})
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, c.Stats().Connections, "the hub's keep-alive counts")
	})
}

func TestSessionExpiryIsAnOption(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		open(t, client(t, h, &nexthub.Hub{SessionExpiry: 8 * time.Hour}, nil))
		s, _ := h.Session("dev-1")
		require.Equal(t, 8*time.Hour, s.Expiry)
	})
}

func TestWhatThisKindOfHubLacksIsRefusedByName(t *testing.T) {
	key := func(context.Context, []byte) ([]byte, error) { return nil, nil }
	for text, c := range map[string]struct {
		creds func(*transport.Credentials)
		opt   mqtt.Options
	}{
		"Sign":      {creds: func(c *transport.Credentials) { c.Sign = key }},
		"Token":     {creds: func(c *transport.Credentials) { c.Token = transport.FixedToken("t") }},
		"UserName":  {creds: func(c *transport.Credentials) { c.UserName = "u" }},
		"ModuleID":  {creds: func(c *transport.Credentials) { c.ModuleID = "m" }},
		"Gateway":   {creds: func(c *transport.Credentials) { c.GatewayHost = "gateway" }},
		"DeviceID":  {creds: func(c *transport.Credentials) { c.DeviceID = "a+b" }},
		"ModelID":   {opt: mqtt.Options{ModelID: "dtmi:a;1"}},
		"Output":    {opt: mqtt.Options{Will: &transport.Message{Output: "o"}}},
		"8h0m0s":    {opt: mqtt.Options{Dialect: &nexthub.Hub{SessionExpiry: 8*time.Hour + 1}}},
		"255000":    {opt: mqtt.Options{Dialect: &nexthub.Hub{MaxSize: 1 << 20}}},
		"&nexthub.": {opt: mqtt.Options{Dialect: (*nexthub.Hub)(nil)}},
	} {
		if c.opt.Dialect == nil {
			c.opt.Dialect = &nexthub.Hub{}
		}
		who := creds()
		if c.creds != nil {
			c.creds(who)
		}
		_, err := device.New(who, mqtt.New(&c.opt), nil)
		require.ErrorIs(t, err, transport.Invalid, text)
		require.ErrorContains(t, err, text)
	}
	_, err := device.New(creds(), paho.New(&mqtt.Options{Dialect: &nexthub.Hub{}}), nil)
	require.ErrorContains(t, err, "the Dialect needs MQTT 5")

	c, err := device.New(creds(), mqtt.New(&mqtt.Options{Dialect: &nexthub.Hub{}}), nil)
	require.NoError(t, err)
	defer c.Close()
	err = c.HandleMessages(func(context.Context, *transport.Message) error { return nil })
	require.ErrorIs(t, err, transport.Unsupported)
	require.ErrorContains(t, err, "cloud-to-device messages are not available from an IoT hub with the MQTT v5 profile")
}

// Back-off counts from the birth-ack and not from CONNACK.
func TestAHubThatAnswersNoBirthIsTriedWithGrowingDelays(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		h.Inject(fault.Fault{Kind: fault.SwallowDispatch, Message: "birth-ack", Times: -1})
		seen, began := new(statuses), time.Now()
		c := client(t, h, &nexthub.Hub{}, &device.Options{OnStatus: seen.add, DialTimeout: 3 * time.Second})
		require.NoError(t, c.Start())
		time.Sleep(30 * time.Second)
		require.Empty(t, seen.delays(), "a step has a minute, whatever DialTimeout is")
		time.Sleep(time.Until(began.Add(time.Minute + time.Second)))
		require.Len(t, seen.delays(), 1)
		time.Sleep(15 * time.Minute)
		delays := seen.delays()
		require.Greater(t, len(delays), 8)
		require.Greater(t, delays[7], 10*delays[0])
		require.Greater(t, delays[7], 5*time.Second)
		require.Zero(t, c.Stats().Connections, "no connection counted")
	})
}

func TestOnlyTheAckOfThisBirthCounts(t *testing.T) {
	const ack = "birth-ack"
	for name, c := range map[string]struct {
		faults []fault.Fault
		fails  transport.Kind // 0: the ack counts
	}{
		"none":        {},
		"any version": {[]fault.Fault{{Kind: fault.RetypeDispatch, Message: ack, Text: "birth-ack:7"}}, 0},
		"no version":  {[]fault.Fault{{Kind: fault.RetypeDispatch, Message: ack, Text: "birth-ack"}}, 0},
		"another type": {[]fault.Fault{{Kind: fault.RetypeDispatch, Message: ack, Text: "hello:1"}},
			transport.Timeout},
		"twice": {[]fault.Fault{{Kind: fault.DuplicateDispatch, Message: ack}}, 0},
		"late":  {[]fault.Fault{{Kind: fault.SlowDispatch, Message: ack, Delay: 59 * time.Second}}, 0},
		"too late": {[]fault.Fault{{Kind: fault.SlowDispatch, Message: ack, Delay: 61 * time.Second}},
			transport.Timeout},
		"of another connection": {[]fault.Fault{{Kind: fault.MisnameDispatch, Message: ack}}, transport.Timeout},
		"unreadable":            {[]fault.Fault{{Kind: fault.GarbleDispatch, Message: ack}}, transport.Unavailable},
		"before the SUBACK":     {[]fault.Fault{{Kind: fault.EarlyBirthAck}}, 0},
		"only before the SUBACK": {[]fault.Fault{{Kind: fault.EarlyBirthAck},
			{Kind: fault.SwallowDispatch, Message: ack}}, transport.Timeout},
		"session present is wrong": {[]fault.Fault{{Kind: fault.WrongSessionPresent}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
				for _, f := range c.faults {
					h.Inject(f)
				}
				tr := mqtt.New(options(h, &nexthub.Hub{}))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s, err := tr.Dial(ctx, &transport.Config{Creds: creds(), Sink: ignore{}})
				if c.fails != 0 {
					require.ErrorIs(t, err, c.fails)
					s, err = tr.Dial(ctx, &transport.Config{Creds: creds(), Sink: ignore{}})
				}
				require.NoError(t, err)
				seen, _ := h.Session("dev-1")
				require.Len(t, seen.Filters, 1)
				ran := make(chan error)
				go func() { ran <- s.Run(ctx) }()
				time.Sleep(75 * time.Second)
				require.Equal(t, 1, h.Connections("dev-1"), "late and foreign acks end nothing")
				cancel()
				<-ran
			})
		})
	}
}

// ignore is a sink for sessions that are not asked for anything.
type ignore struct{}

func (ignore) Done(uint16, error)               { panic("no message was sent") }
func (ignore) Reply(uint32, transport.Reply)    {}
func (ignore) Deliver(*transport.Delivery) bool { return false }

func TestASubscriptionWithoutAnAnswerEndsTheAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		code  byte
		kind  transport.Kind
		retry bool
	}{
		"refused":     {0x87, transport.Forbidden, false},
		"no filter":   {0x8f, transport.Invalid, false},
		"no wildcard": {0xa2, transport.Unsupported, false},
		"quota":       {0x97, transport.Quota, true},
		"for now":     {0x80, transport.Unavailable, true},
		"in use":      {0x91, transport.Unavailable, true},
		"of a future": {0xc7, transport.Unavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
				h.Inject(fault.Fault{Kind: fault.RefuseSubscribe, Code: c.code})
				c2 := client(t, h, &nexthub.Hub{}, nil)
				err := c2.Open(t.Context())
				if c.retry {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, c.kind)
			})
		})
	}
}

// A filter that is granted at another level than the one asked for is granted.
func TestASubscriptionMayHaveAnotherLevel(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		c := client(t, h, &nexthub.Hub{}, nil)
		open(t, c)
		in := h.Inject(fault.Fault{Kind: fault.RefuseSubscribe, Code: 2}) // the session has the filter
		require.NoError(t, c.Reconnect())
		time.Sleep(time.Hour)
		require.Equal(t, 1, in.Fired())
		require.EqualValues(t, 2, c.Stats().Connections)
		require.Equal(t, device.StateConnected, c.Status().State)
	})
}

func TestTheUserNameSaysWhatTheProgramIs(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		o := options(h, &nexthub.Hub{})
		o.Network.ProductInfo = "thermo/2 & more"
		c, err := device.New(creds(), mqtt.New(o), nil)
		require.NoError(t, err)
		defer c.Close()
		open(t, c)
		s, _ := h.Session("dev-1")
		require.True(t, strings.HasSuffix(s.UserName, "&clientVersion=Hubline%20thermo%2F2%20%26%20more"), s.UserName)
	})
}

func TestRandomNumbersThatFailEndTheAttempt(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		for _, random := range []func([]byte) error{
			func([]byte) error { return errors.New("the source is not seeded") },
			func([]byte) error { panic("no source") },
			func([]byte) error { return (*os.PathError)(nil) }, // its methods panic
		} {
			c := client(t, h, &nexthub.Hub{Random: random}, nil)
			require.ErrorContains(t, c.Open(t.Context()), "set Hub.Random")
		}
	})
}

// A source of random numbers that fails later gives no id that can be guessed, and ends no client:
// it may work again.
func TestRandomNumbersMayFailForAWhile(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		var fails atomic.Bool
		c := client(t, h, &nexthub.Hub{Random: func(p []byte) error {
			if fails.Load() {
				return errors.New("not now")
			}
			_, err := rand.Read(p)
			return err
		}}, nil)
		require.NoError(t, c.HandleMethod("m", func(context.Context, *device.MethodCall) (int, []byte) { return 200, nil }))
		open(t, c)
		fails.Store(true)
		_, err := h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "m"})
		e, _ := errors.AsType[*hubdata.ServiceError](err)
		require.NotNil(t, e)
		require.Equal(t, busy, e.Code)
		require.NoError(t, c.Reconnect())
		time.Sleep(time.Minute)
		require.Equal(t, device.StateDisconnectedRetrying, c.Status().State)
		require.ErrorContains(t, c.Status().Err, "not now")

		fails.Store(false)
		time.Sleep(time.Minute)
		require.Equal(t, device.StateConnected, c.Status().State)
		_, err = h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "m"})
		require.NoError(t, err)
	})
}
