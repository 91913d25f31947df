package amqpfront_test

import (
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// An answer has the request's id with the same type: some clients cast it, others compare it.
func TestCorrelationIDsKeepTheirType(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		c := hubtest.DialPeer(t, h).CBS()
		for _, id := range []any{"text", uint64(0), uint64(7), uint64(1 << 40), amqp.UUID{1, 15: 2}, []byte{1, 2}, nil} {
			m := c.Ask(hubtest.TokenMessage(id, "x", hubtest.Token(d)))
			require.Equal(t, id, m.Properties.CorrelationID)
			require.Equal(t, int32(200), m.ApplicationProperties["status-code"])
			require.Equal(t, "OK", m.ApplicationProperties["status-description"])
		}
		m := hubtest.TokenMessage(nil, "x", hubtest.Token(d))
		m.Properties = nil
		require.Equal(t, int32(200), c.Ask(m).ApplicationProperties["status-code"])
	})
}

// A putTokenWorld is the set of devices and the policy in the cases of TestPutToken.
type putTokenWorld struct {
	dev, mod, two, off, odd hubdata.Device
	policy                  hubdata.Policy
}

type putTokenCase struct {
	status int
	change func(m *amqp.Message, w putTokenWorld)
	opens  string // an identity whose links may be attached afterwards, or not if the status is a refusal
}

func putTokenCases() map[string]putTokenCase {
	const sr = "hub.example.test%2Fdevices%2Fdev-1"
	soon := func() int64 { return time.Now().Add(time.Hour).Unix() }
	tok := func(f func(w putTokenWorld) string) func(m *amqp.Message, w putTokenWorld) {
		return func(m *amqp.Message, w putTokenWorld) { m.Value = f(w) }
	}
	return map[string]putTokenCase{
		"all in order": {200, func(*amqp.Message, putTokenWorld) {}, "dev-1"},
		"the other type": {200,
			func(m *amqp.Message, _ putTokenWorld) { m.ApplicationProperties["type"] = "azure-devices.net:sastoken" }, "dev-1"},
		"name encoded": {200, func(m *amqp.Message, _ putTokenWorld) { m.ApplicationProperties["name"] = sr }, "dev-1"},
		"name of a gateway": {200,
			func(m *amqp.Message, _ putTokenWorld) { m.ApplicationProperties["name"] = "gateway/devices/dev-1" }, "dev-1"},
		"expiration": {200,
			func(m *amqp.Message, _ putTokenWorld) { m.ApplicationProperties["expiration"] = time.Now() }, "dev-1"},
		"secondary key": {200, tok(func(w putTokenWorld) string {
			return hubtest.Sign(sr, w.dev.SecondaryKey,
				soon())
		}), "dev-1"},
		"resource not encoded": {200,
			tok(func(w putTokenWorld) string {
				return hubtest.Sign("hub.example.test/devices/dev-1", w.dev.PrimaryKey, soon())
			}), "dev-1"},
		"name for devices": {200,
			tok(func(w putTokenWorld) string {
				return hubtest.Sign("hub.device.example.test%2Fdevices%2Fdev-1", w.dev.PrimaryKey, soon())
			}), "dev-1"},
		"resource encoded twice": {200, tok(func(w putTokenWorld) string {
			return hubtest.Sign("hub.example.test%2Fdevices%2Fdev%252D1", w.dev.PrimaryKey, soon())
		}), "dev-1"},
		"id with a percent sign": {200, tok(func(w putTokenWorld) string { return hubtest.Token(w.odd) }), "a%20b"},
		"module":                 {200, tok(func(w putTokenWorld) string { return hubtest.Token(w.mod) }), "dev-1/mod-1"},
		"policy for whole hub": {200, tok(func(w putTokenWorld) string {
			return hubtest.Sign("hub.example.test", w.policy.PrimaryKey, soon()) + "&skn=" + w.policy.Name
		}), "dev-2"},
		"policy for all devices": {200, tok(func(w putTokenWorld) string {
			return hubtest.Sign("hub.example.test%2Fdevices", w.policy.SecondaryKey, soon()) + "&skn=" + w.policy.Name
		}), "dev-1/mod-1"},
		"policy for one": {200, tok(func(w putTokenWorld) string {
			return hubtest.Sign(sr, w.policy.PrimaryKey, soon()) + "&skn=" + w.policy.Name
		}), "dev-1"},
		"within the grace": {200, tok(func(w putTokenWorld) string {
			return hubtest.Sign(sr, w.dev.PrimaryKey, time.Now().Add(time.Second-5*time.Minute).Unix())
		}), "dev-1"},

		"no operation": {400,
			func(m *amqp.Message, _ putTokenWorld) { delete(m.ApplicationProperties, "operation") }, "dev-1"},
		"another operation": {400,
			func(m *amqp.Message, _ putTokenWorld) { m.ApplicationProperties["operation"] = "delete-token" }, "dev-1"},
		"another type of token": {400,
			func(m *amqp.Message, _ putTokenWorld) { m.ApplicationProperties["type"] = "jwt" }, "dev-1"},
		"no name": {400,
			func(m *amqp.Message, _ putTokenWorld) { delete(m.ApplicationProperties, "name") }, "dev-1"},
		"name that is no text": {400,
			func(m *amqp.Message, _ putTokenWorld) { m.ApplicationProperties["name"] = int32(1) }, "dev-1"},
		"body of bytes": {400,
			func(m *amqp.Message, w putTokenWorld) { m.Value, m.Data = nil, [][]byte{[]byte(hubtest.Token(w.dev))} }, "dev-1"},
		"token of words": {400, tok(func(putTokenWorld) string { return "let me in" }), "dev-1"},
		"key of another": {401, tok(func(w putTokenWorld) string {
			return hubtest.Sign(sr, w.two.PrimaryKey,
				soon())
		}), "dev-1"},
		"expired": {401, tok(func(w putTokenWorld) string {
			return hubtest.Sign(sr, w.dev.PrimaryKey, time.Now().Add(-5*time.Minute-time.Second).Unix())
		}), "dev-1"},
		"another hub": {401, tok(func(w putTokenWorld) string {
			return hubtest.Sign("hub2.example.test%2Fdevices%2Fdev-1", w.dev.PrimaryKey, soon())
		}), "dev-1"},
		"hub without skn": {401, tok(func(w putTokenWorld) string {
			return hubtest.Sign("hub.example.test", w.dev.PrimaryKey, soon())
		}), "dev-1"},
		"policy unknown": {401, tok(func(w putTokenWorld) string {
			return hubtest.Sign("hub.example.test", w.policy.PrimaryKey, soon()) + "&skn=owner"
		}), "dev-1"},
		"policy, bad key": {401, tok(func(w putTokenWorld) string {
			return hubtest.Sign("hub.example.test", w.dev.PrimaryKey, soon()) + "&skn=" + w.policy.Name
		}), "dev-1"},
		"policy, expired": {401, tok(func(w putTokenWorld) string {
			return hubtest.Sign("hub.example.test", w.policy.PrimaryKey, 1) + "&skn=" + w.policy.Name
		}), "dev-1"},
		"below the device": {401, tok(func(w putTokenWorld) string {
			return hubtest.Sign(sr+"%2Fx", w.dev.PrimaryKey, soon())
		}), "dev-1"},
		"not of devices": {401, tok(func(w putTokenWorld) string {
			return hubtest.Sign("hub.example.test%2Fthings%2Fdev-1", w.dev.PrimaryKey, soon())
		}), "dev-1"},
		"disabled": {401, tok(func(w putTokenWorld) string { return hubtest.Token(w.off) }), "off"},
		"unknown device": {404, tok(func(w putTokenWorld) string {
			return hubtest.Sign("hub.example.test%2Fdevices%2Fnobody", w.dev.PrimaryKey, soon())
		}), "dev-1"},

		"device's for its module": {200, func(*amqp.Message, putTokenWorld) {}, "!dev-1/mod-1"},
		"device's for another":    {200, func(*amqp.Message, putTokenWorld) {}, "!dev-2"},
		"module's for its device": {200, tok(func(w putTokenWorld) string { return hubtest.Token(w.mod) }), "!dev-1"},
		"policy's for one disabled": {200, tok(func(w putTokenWorld) string {
			return hubtest.Sign("hub.example.test", w.policy.PrimaryKey, soon()) + "&skn=" + w.policy.Name
		}), "!off"},
	}
}

func TestPutToken(t *testing.T) {
	for name, c := range putTokenCases() {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			var events []string
			h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: func(e event.Event) { events = append(events, e.String()) }})
			w := putTokenWorld{dev: d}
			var err error
			w.mod = hubtest.AddModule(t, h, "dev-1", "mod-1")
			w.two = hubtest.AddDevice(t, h, "dev-2")
			w.off = hubtest.AddDevice(t, h, "off")
			w.odd = hubtest.AddDevice(t, h, "a%20b")
			require.NoError(t, h.SetEnabled("off", false))
			w.policy = hubtest.AddPolicy(t, h, "service")
			p := hubtest.DialPeer(t, h)
			m := hubtest.TokenMessage("id", "hub.example.test/devices/dev-1", hubtest.Token(d))
			c.change(m, w)
			answer := p.CBS().Ask(m)
			require.Equal(t, int32(c.status), answer.ApplicationProperties["status-code"],
				answer.ApplicationProperties["status-description"])
			require.NotContains(t, fmt.Sprint(answer.ApplicationProperties, events), d.PrimaryKey)

			who, not := strings.CutPrefix(c.opens, "!")
			id, module, _ := strings.Cut(who, "/")
			_, err = p.Session().NewSender(t.Context(), hubtest.Resource(hubdata.Device{ID: id, ModuleID: module})+
				"/messages/events", nil)
			if c.status == 200 && !not {
				require.NoError(t, err)
				require.Equal(t, 1, h.Connections(who))
			} else {
				require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, err))
				require.Zero(t, h.Connections("dev-2"))
			}
		})
	}
}

func TestTokensEndAndAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone []string
		h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: func(e event.Event) {
			if e.Kind == event.Disconnected {
				gone = append(gone, e.String())
			}
		}})
		two := hubtest.AddDevice(t, h, "dev-2")
		p := hubtest.DialPeer(t, h)
		c := p.CBS()
		short := func(d hubdata.Device) string {
			return hubtest.Sign(url.QueryEscape(d.HostName+"/devices/"+d.ID), d.PrimaryKey,
				time.Now().Add(10*time.Minute).Unix())
		}
		require.Equal(t, 200, c.Put(short(d)))
		require.Equal(t, 200, c.Put(short(two)))
		s1, s2 := p.Telemetry(d), p.Telemetry(two)
		r1 := p.C2dMessages(d, nil)
		time.Sleep(14 * time.Minute)
		require.NoError(t, s1.Send(t.Context(), hubtest.Body("x"), nil))
		require.Equal(t, 200, c.Put(short(two)), "renewed")
		_, err := r1.Receive(t.Context(), nil)
		require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, err))
		require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, s1.Send(t.Context(), hubtest.Body("x"), nil)))
		require.NoError(t, s2.Send(t.Context(), hubtest.Body("x"), nil), "others are not touched")
		require.Zero(t, h.Connections("dev-1"))
		require.Equal(t, 1, h.Connections("dev-2"))
		require.Equal(t, []string{"#1 dev-1 disconnected: token of the connection expired"}, gone)
		_, err = p.Session().NewSender(t.Context(), "/devices/dev-1/messages/events", nil)
		require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, err))
		require.Equal(t, 200, c.Put(short(d)))
		p.Telemetry(d)
		require.Equal(t, 1, h.Connections("dev-1"))
	})
}

func TestTokenOfSASLEndsTheConnection(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		stream := hubtest.DialPort(t, h, testbroker.PortAMQP)
		p := hubtest.NewPeer(t, h, stream, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain("dev-1@sas.hub", hubtest.Token(d))})
		r := p.C2dMessages(d, nil)
		start := time.Now()
		_, err := r.Receive(t.Context(), nil)
		require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, err))
		require.Equal(t, 65*time.Minute, time.Since(start))
		<-p.Conn.Done()
		require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, p.Conn.Err()))
	})
}

func TestTooManyTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{AMQP: testbroker.AMQPOptions{MaxTokens: 1}})
		two := hubtest.AddDevice(t, h, "dev-2")
		c := hubtest.DialPeer(t, h).CBS()
		require.Equal(t, 200, c.Put(hubtest.Token(d)))
		require.Equal(t, 403, c.Put(hubtest.Token(two)))
		require.Equal(t, 200, c.Put(hubtest.Token(d)))
	})
}

func TestDisabledAndRemovedOverAMQP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		two := hubtest.AddDevice(t, h, "dev-2")
		p := hubtest.DialPeer(t, h)
		c := p.CBS()
		require.Equal(t, 200, c.Put(hubtest.Token(d)))
		require.Equal(t, 200, c.Put(hubtest.Token(two)))
		s1, s2 := p.Telemetry(d), p.Telemetry(two)
		require.NoError(t, h.SetEnabled("dev-1", false))
		require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, s1.Send(t.Context(), hubtest.Body("x"), nil)))
		require.NoError(t, s2.Send(t.Context(), hubtest.Body("x"), nil))
		require.NoError(t, h.RemoveDevice("dev-2"))
		require.Equal(t, "amqp:resource-deleted", hubtest.Condition(t, s2.Send(t.Context(), hubtest.Body("x"), nil)))
		require.Zero(t, h.Connections("dev-1")+h.Connections("dev-2"))
		require.Equal(t, 1, h.Connections(""))
		_, err := p.Session().NewSender(t.Context(), "/devices/dev-2/messages/events", nil)
		require.Equal(t, "amqp:not-found", hubtest.Condition(t, err))
		require.Equal(t, 401, c.Put(hubtest.Token(d)))
		require.Equal(t, 404, c.Put(hubtest.Token(two)))
	})
}

// A device that is removed while its token is put has no right, also when it is registered again.
func TestATokenPutDuringARemovalGivesNoRight(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		c := hubtest.DialPeer(t, h).CBS()
		for round := range 500 {
			removed := make(chan error)
			go func() {
				for range round % 100 {
					runtime.Gosched()
				}
				removed <- h.RemoveDevice("dev-1")
			}()
			c.Put(hubtest.Token(d))
			require.NoError(t, <-removed)
			require.Zero(t, h.Connections("dev-1"))
			var err error
			d, err = h.AddDevice("dev-1")
			require.NoError(t, err)
		}
	})
}

// Many devices share one connection, each with its own session and the same link names.
func TestAThousandDevicesOnOneConnection(t *testing.T) {
	const devices = 1000
	h, _ := hubtest.NewHub(t, nil)
	p := hubtest.DialFrames(t, h)
	p.Open(nil)
	p.Begin(0)
	p.Attach(hubtest.SenderTo("$cbs", 100))
	p.Attach(hubtest.ReceiverFrom("$cbs", 101))
	wide := hubtest.Credit(101, 2*devices)
	wide.IncomingWindow = 2 * devices
	p.Say(0, wide)
	for i := range uint16(devices) {
		d := hubtest.AddDevice(t, h, fmt.Sprint("d", i))
		require.Equal(t, 200, p.Put(uint32(i), "put-token", hubtest.Token(d)))
		p.Say(i+1, hubtest.BeginOf(100))
		hubtest.Want[*amqpwire.Begin](p)
		a := hubtest.SenderTo("amqps://hub.example.test:5671"+hubtest.Resource(d)+"/messages/events", 0)
		a.Name = "TelemetrySenderLink"
		p.Say(i+1, a)
		hubtest.Want[*amqpwire.Attach](p)
		hubtest.Want[*amqpwire.Flow](p)
		r := hubtest.ReceiverFrom("amqps://hub.example.test:5671"+hubtest.Resource(d)+"/messages/deviceBound", 1)
		r.Name = "TelemetryReceiverLink"
		p.Say(i+1, r)
		hubtest.Want[*amqpwire.Attach](p)
		p.Say(i+1, hubtest.Credit(1, 10))
	}
	require.Equal(t, 2*devices, h.Links("", fault.LinkAny))
	require.Equal(t, 1, h.Connections("d999"))
	for i := range uint16(devices) {
		p.Say(i+1, hubtest.TransferOf(0, 0), hubtest.DataOf(t, fmt.Sprint(i))...)
	}
	for range devices {
		hubtest.Want[*amqpwire.Disposition](p)
	}
	for i, m := range h.Messages() {
		require.Equal(t, fmt.Sprint("d", i), m.DeviceID)
		require.Equal(t, fmt.Sprint(i), string(m.Body))
	}
	require.NoError(t, h.SendC2D("d500", hubdata.C2D{Body: []byte("you")}))
	_, f := hubtest.Want[*amqpwire.Transfer](p)
	require.EqualValues(t, 501, f.Channel)
	require.NoError(t, h.RemoveDevice("d7"))
	for range 2 {
		_, f := hubtest.Want[*amqpwire.Detach](p)
		require.EqualValues(t, 8, f.Channel)
	}
	require.Equal(t, 2*devices-2, h.Links("", fault.LinkAny))
}
