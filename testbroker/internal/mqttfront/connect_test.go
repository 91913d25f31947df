package mqttfront_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// A policyStore has one policy, with the right to connect devices, from an earlier run.
type policyStore struct{ name, key string }

func (s policyStore) Load(each func(hubdata.Record) error) error {
	return each(hubdata.Record{Table: "policies", Key: s.name,
		Value: fmt.Appendf(nil, `{"Keys":{"Primary":%q},"Rights":%d}`, s.key, hubdata.RightDeviceConnect)})
}

func (policyStore) Save([]hubdata.Record) error { return nil }

func TestGoldenTokensAreAccepted(t *testing.T) {
	const tail = "&se=1893456000"
	for name, c := range map[string]struct{ device, module, token string }{
		"device": {"dev-1", "",
			"sr=hub1.example.test%2Fdevices%2Fdev-1&sig=D3YPCbjg9OEBgbkWVCXmOeKhVVkbOo7jR%2BVPYEFxF5w%3D" + tail},
		"module": {"dev-1", "mod-1",
			"sr=hub1.example.test%2Fdevices%2Fdev-1%2Fmodules%2Fmod-1&sig=BygQTaq%2B%2BexEDIDsROvbR7QfclF0h64UGKEmLJ7BcRY%3D" +
				tail},
		"policy": {"dev-1", "", "sr=hub1.example.test&sig=jqevsbxyY%2BOSlaPjzWQE4xd83NR3tgaQfh7sJnadmj8%3D" + tail +
			"&skn=device"},
		"special characters": {"a:b@c$d", "",
			"sr=hub1.example.test%2Fdevices%2Fa%3Ab%40c%24d&sig=KFs6rqlpKwuOwJ3tW6KhXFpJwccSJHoJ%2BjzDW5TAhfs%3D" + tail},
		"fields in another order": {"dev-1", "",
			"se=1893456000&SIG=D3YPCbjg9OEBgbkWVCXmOeKhVVkbOo7jR%2BVPYEFxF5w%3D&new=1&sr=hub1.example.test%2Fdevices%2Fdev-1"},
		"policy present but empty": {"dev-1", "",
			"sr=hub1.example.test%2Fdevices%2Fdev-1&sig=D3YPCbjg9OEBgbkWVCXmOeKhVVkbOo7jR%2BVPYEFxF5w%3D" + tail + "&skn="},
		"lower-case hex in signature": {"dev-1", "",
			"sr=hub1.example.test%2Fdevices%2Fdev-1&sig=D3YPCbjg9OEBgbkWVCXmOeKhVVkbOo7jR%2bVPYEFxF5w%3d" + tail},
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			h, _ := hubtest.NewHub(t, &testbroker.Options{HostName: "hub1.example.test",
				Store: policyStore{"device", hubtest.GoldenKey}})
			if c.device != "dev-1" {
				hubtest.AddDevice(t, h, c.device)
			}
			id := c.device
			if c.module != "" {
				hubtest.AddModule(t, h, c.device, c.module)
				id += "/" + c.module
			}
			require.NoError(t, h.SetKeys(id, hubtest.GoldenKey, hubtest.GoldenKey))
			w := hubtest.Dial(t, h)
			require.Equal(t, []byte{0, 0}, w.Connect(hubtest.Connect{
				Name: "MQTT", Level: 4, Flags: 2, KeepAlive: 60, ClientID: id,
				User: "hub1.example.test/" + id + "/?api-version=2021-04-12", Password: "SharedAccessSignature " + c.token,
			}))
			require.Equal(t, 1, h.Connections(id))
		})
	}
}

// A connackWorld is the hub with the devices and the policy in the cases of TestConnackCodes.
type connackWorld struct {
	hub           *testbroker.Hub
	dev, mod, two hubdata.Device
	policy        hubdata.Policy
}

type connackCase struct {
	want   byte
	change func(*hubtest.Connect, connackWorld)
}

func connackCases(t *testing.T) map[string]connackCase {
	soon := func() int64 { return time.Now().Add(time.Hour).Unix() }
	tok := func(f func(w connackWorld) string) func(*hubtest.Connect, connackWorld) {
		return func(c *hubtest.Connect, w connackWorld) { c.Password = f(w) }
	}
	user := func(s string) func(*hubtest.Connect, connackWorld) {
		return func(c *hubtest.Connect, _ connackWorld) { c.User = s }
	}
	const sr = "hub.example.test%2Fdevices%2Fdev-1"
	return map[string]connackCase{
		"all in order":  {0, func(*hubtest.Connect, connackWorld) {}},
		"session kept":  {0, func(c *hubtest.Connect, _ connackWorld) { c.Flags = 0 }},
		"secondary key": {0, tok(func(w connackWorld) string { return hubtest.Sign(sr, w.dev.SecondaryKey, soon()) })},
		"lower-case hex": {0,
			tok(func(w connackWorld) string {
				return hubtest.Sign("hub.example.test%2fdevices%2fdev-1", w.dev.PrimaryKey, soon())
			})},
		"resource not encoded": {0,
			tok(func(w connackWorld) string {
				return hubtest.Sign("hub.example.test/devices/dev-1", w.dev.PrimaryKey, soon())
			})},
		"resource encoded twice": {0,
			tok(func(w connackWorld) string {
				return hubtest.Sign("hub.example.test%2Fdevices%2Fdev%252D1", w.dev.PrimaryKey, soon())
			})},
		"host in capitals": {0,
			tok(func(w connackWorld) string {
				return hubtest.Sign("HUB.example.test%2Fdevices%2Fdev-1", w.dev.PrimaryKey, soon())
			})},
		"name for devices": {0, func(c *hubtest.Connect, w connackWorld) {
			c.User = "hub.device.example.test/dev-1/?api-version=2021-04-12"
			c.Password = hubtest.Sign("hub.device.example.test%2Fdevices%2Fdev-1", w.dev.PrimaryKey, soon())
		}},
		"name for devices of another hub": {5, user("hub2.device.example.test/dev-1/?api-version=2021-04-12")},
		"token without a hub": {5, tok(func(w connackWorld) string {
			return hubtest.Sign("%2Fdevices%2Fdev-1", w.dev.PrimaryKey, soon())
		})},
		"no query":         {0, user("hub.example.test/dev-1")},
		"slash only":       {0, user("hub.example.test/dev-1/")},
		"no question mark": {0, user("hub.example.test/dev-1/api-version=2020-09-30")},
		"model id raw": {0,
			user("hub.example.test/dev-1/?api-version=2020-09-30&model-id=dtmi:com:example:Thermostat;1&DeviceClientType=a/b")},
		"preview version": {0, user("Hub.Example.Test/dev-1/?api-version=2020-05-31-preview")},
		"policy for whole hub": {0, tok(func(w connackWorld) string {
			return hubtest.Sign("hub.example.test", w.policy.PrimaryKey, soon()) + "&skn=" + w.policy.Name
		})},
		"policy for all devices": {0, tok(func(w connackWorld) string {
			return hubtest.Sign("hub.example.test%2Fdevices", w.policy.SecondaryKey, soon()) + "&skn=" + w.policy.Name
		})},
		"module": {0, func(c *hubtest.Connect, w connackWorld) { *c = hubtest.ConnectOf(w.mod) }},
		"module by device's scope": {0,
			func(c *hubtest.Connect, w connackWorld) {
				*c = hubtest.ConnectOf(w.mod)
				c.Password = hubtest.Sign(sr, w.mod.PrimaryKey, soon())
			}},
		"within the grace": {0, tok(func(w connackWorld) string {
			return hubtest.Sign(sr, w.dev.PrimaryKey, time.Now().Add(time.Second-5*time.Minute).Unix())
		})},
		"expiry beyond all time": {0, tok(func(w connackWorld) string { return hubtest.Sign(sr, w.dev.PrimaryKey, 1<<62) })},

		"level 3":                {1, func(c *hubtest.Connect, _ connackWorld) { c.Name, c.Level = "MQIsdp", 3 }},
		"level 3 by the name 4":  {1, func(c *hubtest.Connect, _ connackWorld) { c.Name = "MQIsdp" }},
		"level 5":                {1, func(c *hubtest.Connect, _ connackWorld) { c.Level = 5 }},
		"level 6":                {1, func(c *hubtest.Connect, _ connackWorld) { c.Level = 6 }},
		"client id of another":   {2, func(c *hubtest.Connect, _ connackWorld) { c.ClientID = "dev-2" }},
		"client id of a module":  {2, func(c *hubtest.Connect, _ connackWorld) { c.ClientID = "dev-1/mod-1" }},
		"client id missing":      {2, func(c *hubtest.Connect, _ connackWorld) { c.ClientID = "" }},
		"client id missing, old": {2, func(c *hubtest.Connect, _ connackWorld) { c.ClientID, c.Flags = "", 0 }},

		"user name missing":     {4, user("")},
		"user name without id":  {4, user("hub.example.test")},
		"user name without hub": {4, user("/dev-1")},
		"id that cannot be":     {4, user("hub.example.test/dev 1")},
		"module that cannot be": {4, user("hub.example.test/dev-1/m;1/")},
		"version that is none":  {4, user("hub.example.test/dev-1/?api-version=newest")},
		"bad escape":            {4, user("hub.example.test/dev-1/?model-id=%zz")},
		"token of words":        {4, tok(func(connackWorld) string { return "let me in" })},
		"token without sr":      {4, tok(func(connackWorld) string { return "SharedAccessSignature sig=YQ%3D%3D&se=1" })},
		"token without sig":     {4, tok(func(connackWorld) string { return "SharedAccessSignature sr=a&se=1" })},
		"token without se":      {4, tok(func(connackWorld) string { return "SharedAccessSignature sr=a&sig=YQ%3D%3D" })},
		"token with two sr": {4, tok(func(connackWorld) string {
			return "SharedAccessSignature sr=a&sr=b&sig=YQ%3D%3D&se=1"
		})},
		"sig not base64":  {4, tok(func(connackWorld) string { return "SharedAccessSignature sr=a&sig=%21&se=1" })},
		"sig not encoded": {4, tok(func(connackWorld) string { return "SharedAccessSignature sr=a&sig=YQ==&se=1" })},
		"se not a number": {4, tok(func(connackWorld) string {
			return "SharedAccessSignature sr=a&sig=YQ%3D%3D&se=soon"
		})},
		"se negative": {4, tok(func(connackWorld) string {
			return "SharedAccessSignature sr=a&sig=YQ%3D%3D&se=-1"
		})},

		"no token": {5, func(c *hubtest.Connect, _ connackWorld) { c.Password = "" }},
		"empty password": {5, func(c *hubtest.Connect,
			_ connackWorld) {
			c.Password = ""
			c.Flags |= 0x40
			c.User += "\x00"
		}},
		"key of another":   {5, tok(func(w connackWorld) string { return hubtest.Sign(sr, w.two.PrimaryKey, soon()) })},
		"token of another": {5, tok(func(w connackWorld) string { return hubtest.Token(w.two) })},
		"shorter id": {5, tok(func(w connackWorld) string {
			return hubtest.Sign("hub.example.test%2Fdevices%2Fdev", w.dev.PrimaryKey, soon())
		})},
		"id in capitals": {5, tok(func(w connackWorld) string {
			return hubtest.Sign("hub.example.test%2Fdevices%2FDEV-1", w.dev.PrimaryKey, soon())
		})},
		"another hub's token": {5, tok(func(w connackWorld) string {
			return hubtest.Sign("hub2.example.test%2Fdevices%2Fdev-1", w.dev.PrimaryKey, soon())
		})},
		"a module's token": {5, tok(func(w connackWorld) string { return hubtest.Token(w.mod) })},
		"device's for a module": {5, func(c *hubtest.Connect, w connackWorld) {
			*c = hubtest.ConnectOf(w.mod)
			c.Password = hubtest.Token(w.dev)
		}},
		"expired": {5, tok(func(w connackWorld) string {
			return hubtest.Sign(sr, w.dev.PrimaryKey, time.Now().Add(-5*time.Minute-time.Second).Unix())
		})},
		"expiry changed": {5,
			tok(func(w connackWorld) string { return strings.Replace(hubtest.Token(w.dev), "&se=", "&se=1", 1) })},
		"policy unknown": {5, tok(func(w connackWorld) string { return hubtest.Token(w.dev) + "&skn=nobody" })},
		"policy with device key": {5,
			tok(func(w connackWorld) string { return hubtest.Token(w.dev) + "&skn=" + w.policy.Name })},
		"policy, no such device": {5, func(c *hubtest.Connect, w connackWorld) {
			c.User, c.ClientID = "hub.example.test/dev-9", "dev-9"
			c.Password = hubtest.Sign("hub.example.test", w.policy.PrimaryKey, soon()) + "&skn=" + w.policy.Name
		}},
		"device unknown": {5, func(c *hubtest.Connect, w connackWorld) { require.NoError(t, w.hub.RemoveDevice("dev-1")) }},
		"device disabled": {5, func(c *hubtest.Connect, w connackWorld) {
			require.NoError(t, w.hub.SetEnabled("dev-1",
				false))
		}},
		"its module as well": {5, func(c *hubtest.Connect, w connackWorld) {
			*c = hubtest.ConnectOf(w.mod)
			require.NoError(t, w.hub.SetEnabled("dev-1", false))
		}},
		"module unknown": {5, func(c *hubtest.Connect, w connackWorld) {
			*c = hubtest.ConnectOf(w.mod)
			require.NoError(t, w.hub.RemoveDevice("dev-1/mod-1"))
		}},
		"another hub's name": {5, user("hub2.example.test/dev-1/?api-version=2021-04-12")},
		"keys were changed": {5, func(c *hubtest.Connect, w connackWorld) {
			require.NoError(t, w.hub.SetKeys("dev-1", hubtest.GoldenKey, hubtest.GoldenKey))
		}},
	}
}

// TestConnackCodes changes one thing in a valid CONNECT and checks the answer.
func TestConnackCodes(t *testing.T) {
	for name, c := range connackCases(t) {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			var last event.Event
			h, dev := hubtest.NewHub(t, &testbroker.Options{OnEvent: func(e event.Event) { last = e }})
			w := connackWorld{hub: h, dev: dev}
			w.mod = hubtest.AddModule(t, h, "dev-1", "mod-1")
			w.two = hubtest.AddDevice(t, h, "dev-2")
			w.policy = hubtest.AddPolicy(t, h, "device")

			con := hubtest.ConnectOf(dev)
			c.change(&con, w)
			raw := con.Bytes()
			if strings.HasSuffix(con.User, "\x00") { // a password that is present but empty
				con.User = strings.TrimSuffix(con.User, "\x00")
				raw = con.Bytes()
				raw = append(raw, 0, 0)
				raw[1] += 2
			}
			client := hubtest.Dial(t, h)
			client.Send(raw)
			require.Equal(t, []byte{0, c.want}, client.Expect(hubtest.Connack))
			if c.want == 0 {
				client.Ping()
				return
			}
			require.Equal(t, io.EOF, client.End(), "the hub closes after the refusal")
			client.Conn.Close()
			synctest.Wait()
			require.Zero(t, h.Connections(""))
			require.Equal(t, event.Refused, last.Kind)
			require.Equal(t, c.want, last.Code)
			require.Error(t, last.Err)
		})
	}
}

func TestClosedWithoutAnswer(t *testing.T) {
	for name, packet := range map[string]func(d hubdata.Device) []byte{
		"unknown protocol": func(d hubdata.Device) []byte { c := hubtest.ConnectOf(d); c.Name = "MQTX"; return c.Bytes() },
		"reserved flag":    func(d hubdata.Device) []byte { c := hubtest.ConnectOf(d); c.Flags |= 1; return c.Bytes() },
		"will flags only":  func(d hubdata.Device) []byte { c := hubtest.ConnectOf(d); c.Flags |= 0x20; return c.Bytes() },
		"will to another": func(d hubdata.Device) []byte {
			c := hubtest.ConnectOf(d)
			c.Will = &hubtest.Will{Topic: "devices/dev-2/messages/events/", Text: "x"}
			return c.Bytes()
		},
		"will with QoS 2": func(d hubdata.Device) []byte {
			c := hubtest.ConnectOf(d)
			c.Will = &hubtest.Will{Topic: hubtest.Events, Text: "x", Qos: 2}
			return c.Bytes()
		},
		"publish first":   func(hubdata.Device) []byte { return hubtest.PublishBytes(2, 1, hubtest.Events, "x") },
		"half a connect":  func(d hubdata.Device) []byte { return hubtest.Frame(0x10, hubtest.Str("MQTT"), []byte{4}) },
		"request of HTTP": func(hubdata.Device) []byte { return []byte("GET / HTTP/1.1\r\n\r\n") },
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			var last event.Event
			h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: func(e event.Event) { last = e }})
			w := hubtest.Dial(t, h)
			w.Send(packet(d))
			require.Equal(t, io.EOF, w.End())
			synctest.Wait()
			require.Equal(t, event.Refused, last.Kind)
			require.Zero(t, last.Code)
			require.Error(t, last.Err)
		})
	}
}

func TestConnectionWithoutConnectIsClosed(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		start := time.Now()
		w := hubtest.Dial(t, h)
		require.Equal(t, io.EOF, w.End())
		require.Equal(t, time.Minute, time.Since(start))
	})
}

func TestSecondConnectPacketCloses(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Send(hubtest.ConnectOf(d).Bytes())
		require.Equal(t, io.EOF, w.End())
	})
}

func TestNewerConnectionClosesTheOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var causes []string
		h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: func(e event.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == event.Disconnected {
				causes = append(causes, e.String())
			}
		}})
		mod := hubtest.AddModule(t, h, "dev-1", "mod-1")
		module := hubtest.Login(t, h, mod)
		one := hubtest.Login(t, h, d)
		two := hubtest.Login(t, h, d)
		require.Equal(t, io.EOF, one.End(), "no packet says good-bye")
		two.Ping()
		module.Ping()
		require.Equal(t, 2, h.Connections("dev-1"))
		require.Equal(t, 1, h.Connections("dev-1/mod-1"))
		require.Equal(t, []string{"#2 dev-1 disconnected: replaced by a newer connection of the same identity"}, causes)
	})
}

func TestConnectionsOfOneDeviceFightOrderly(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				w := hubtest.Dial(t, h)
				w.Send(hubtest.ConnectOf(d).Bytes())
				w.Read()
			})
		}
		wg.Wait()
		synctest.Wait()
		require.Equal(t, 1, h.Connections(""))
		hubtest.Login(t, h, d).Ping()
		require.Equal(t, 1, h.Connections(""))
	})
}

func TestRefusedConnectDoesNotDisturbTheLiveOne(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		bad := hubtest.ConnectOf(d)
		bad.Password = hubtest.Sign("hub.example.test%2Fdevices%2Fdev-1", hubtest.GoldenKey, time.Now().Add(time.Hour).Unix())
		require.Equal(t, []byte{0, 5}, hubtest.Dial(t, h).Connect(bad))
		w.Ping()
	})
}

func TestRegistryCutsConnections(t *testing.T) {
	for name, act := range map[string]func(h *testbroker.Hub) error{
		"disabled": func(h *testbroker.Hub) error { return h.SetEnabled("dev-1", false) },
		"removed":  func(h *testbroker.Hub) error { return h.RemoveDevice("dev-1") },
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			mod := hubtest.AddModule(t, h, "dev-1", "mod-1")
			other := hubtest.AddDevice(t, h, "dev-10")
			a, b, c := hubtest.Login(t, h, d), hubtest.Login(t, h, mod), hubtest.Login(t, h, other)
			require.NoError(t, act(h))
			require.Equal(t, io.EOF, a.End())
			require.Equal(t, io.EOF, b.End())
			c.Ping()
		})
	}
}

func TestClockOfTheHubJudgesTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{TokenGrace: -1,
			Now: func() time.Time { return time.Now().Add(59 * time.Minute) }})
		start := time.Now()
		w := hubtest.Login(t, h, d)
		w.Publish(1, hubtest.Events, "x")
		w.Acked()
		require.Equal(t, start.Add(59*time.Minute), h.Messages()[0].Received)
		require.Equal(t, []byte{0, 5}, func() []byte {
			c := hubtest.ConnectOf(d)
			c.Password = hubtest.Sign("hub.example.test%2Fdevices%2Fdev-1", d.PrimaryKey, start.Add(58*time.Minute).Unix())
			return hubtest.Dial(t, h).Connect(c)
		}())
		w.Conn.SetDeadline(time.Time{})
		_, _, err := w.Read() // the keep-alive is a minute; the token expires in a minute, without grace
		require.Equal(t, io.EOF, err)
		require.Equal(t, time.Minute, time.Since(start))
	})
}

func TestKeepAlive(t *testing.T) {
	for keepAlive, want := range map[uint16]time.Duration{
		10:    15 * time.Second,
		240:   6 * time.Minute,
		0:     1767 * time.Second,
		1178:  1767 * time.Second,
		1200:  1767 * time.Second,
		65535: 1767 * time.Second,
	} {
		hubtest.RunInBubble(t, fmt.Sprint(keepAlive), nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			c := hubtest.ConnectOf(d)
			c.KeepAlive = keepAlive
			w := hubtest.Dial(t, h)
			require.Equal(t, []byte{0, 0}, w.Connect(c))
			time.Sleep(want - time.Second)
			w.Ping()
			start := time.Now()
			require.Equal(t, io.EOF, w.End())
			require.Equal(t, want, time.Since(start))
		})
	}
}

// A message counts as a sign of life, but not the beginning of one.
func TestKeepAliveOfAPublishingClient(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		c := hubtest.ConnectOf(d)
		c.KeepAlive = 10
		w := hubtest.Dial(t, h)
		require.Equal(t, []byte{0, 0}, w.Connect(c))
		for id := range uint16(3) {
			time.Sleep(14 * time.Second)
			w.Publish(id+1, "devices/dev-1/messages/events/", "x")
			require.Equal(t, id+1, w.Acked())
		}
		start := time.Now()
		time.Sleep(14 * time.Second)
		w.Send(hubtest.PublishBytes(2, 4, "devices/dev-1/messages/events/", "x")[:5])
		require.Equal(t, io.EOF, w.End())
		require.Equal(t, 15*time.Second, time.Since(start))
		require.Equal(t, 3, h.Len())
	})
}

// Messages that arrive together are acknowledged together, in order, whatever the pieces. Other
// packets between them are answered in their turn.
func TestMessagesInPieces(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		var all []byte
		const n = 200
		for id := uint16(1); id <= n; id++ {
			all = append(all, hubtest.PublishBytes(2, id, "devices/dev-1/messages/events/", strings.Repeat("x", int(id)*7))...)
			if id == n/2 {
				all = append(all, 0xc0, 0) // PINGREQ
			}
		}
		for len(all) > 0 {
			piece := min(len(all), 1+len(all)/3)
			w.Send(all[:piece])
			all = all[piece:]
		}
		for id := uint16(1); id <= n; id++ {
			require.Equal(t, id, w.Acked())
			if id == n/2 {
				w.Expect(hubtest.Pingresp)
			}
		}
		for i, m := range h.Messages() {
			require.Equal(t, strings.Repeat("x", (i+1)*7), string(m.Body))
		}
		require.Equal(t, n, h.Len())
	})
}

func TestKeptSessionIsPresent(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		c := hubtest.ConnectOf(d)
		c.Flags = 0
		w := hubtest.Dial(t, h)
		require.Equal(t, []byte{0, 0}, w.Connect(c))
		w.Subscribe(1, "$iothub/twin/res/#")
		w.Conn.Close()
		require.Equal(t, []byte{1, 0}, hubtest.Dial(t, h).Connect(c))
		require.Equal(t, []byte{0, 0}, hubtest.Dial(t, h).Connect(hubtest.ConnectOf(d)), "a clean session is new")
	})
}

func TestRegistry(t *testing.T) {
	h, d := hubtest.NewHub(t, nil)
	_, err := h.AddDevice("dev-1")
	require.ErrorIs(t, err, testbroker.ErrExists)
	for _, id := range []string{"", "a b", "a/b", "a;b", strings.Repeat("x", 129), "ü"} {
		_, err = h.AddDevice(id)
		require.Error(t, err, id)
	}
	_, err = h.AddModule("dev-2", "m")
	require.ErrorIs(t, err, testbroker.ErrNotFound)
	_, err = h.AddModule("dev-1", "")
	require.Error(t, err)
	m := hubtest.AddModule(t, h, "dev-1", "m")
	require.Equal(t, "HostName=hub.example.test;DeviceId=dev-1;SharedAccessKey="+d.PrimaryKey, h.ConnectionString("dev-1"))
	require.Equal(t, "HostName=hub.example.test;DeviceId=dev-1;ModuleId=m;SharedAccessKey="+m.PrimaryKey,
		h.ConnectionString("dev-1/m"))
	require.Empty(t, h.ConnectionString("dev-2"))
	hubtest.AddPolicy(t, h, "p")
	_, err = h.AddPolicy("p")
	require.ErrorIs(t, err, testbroker.ErrExists)
	_, err = h.AddPolicy("")
	require.Error(t, err)
	require.Error(t, h.SetKeys("dev-1", "short", "short"))
	require.ErrorIs(t, h.SetKeys("dev-2", hubtest.GoldenKey, hubtest.GoldenKey), testbroker.ErrNotFound)
	require.ErrorIs(t, h.SetEnabled("dev-2", false), testbroker.ErrNotFound)
	require.ErrorIs(t, h.RemoveDevice("dev-2"), testbroker.ErrNotFound)

	require.NoError(t, h.RemoveDevice("dev-1"))
	_, err = h.Device("dev-1/m")
	require.ErrorIs(t, err, testbroker.ErrNotFound, "modules go with their device")
	again := hubtest.AddDevice(t, h, "dev-1")
	require.NotEqual(t, d.PrimaryKey, again.PrimaryKey)
	require.NotEqual(t, d.PrimaryKey, d.SecondaryKey)
}

func TestKeysAreNotPrinted(t *testing.T) {
	h, d := hubtest.NewHub(t, nil)
	p := hubtest.AddPolicy(t, h, "device")
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		text := fmt.Sprintf(format+format, d, p)
		for _, key := range []string{d.PrimaryKey, d.SecondaryKey, p.PrimaryKey, p.SecondaryKey} {
			require.NotContains(t, text, key)
		}
		require.Contains(t, text, "dev-1")
	}
}

func TestSeedMakesKeysRepeat(t *testing.T) {
	keys := func(seed uint64, ids ...string) map[string]string {
		h, err := testbroker.New(&testbroker.Options{Seed: seed})
		require.NoError(t, err)
		defer h.Close()
		all := make(map[string]string)
		for _, id := range ids {
			d := hubtest.AddDevice(t, h, id)
			all[id] = d.PrimaryKey + d.SecondaryKey
		}
		require.NoError(t, h.RemoveDevice(ids[0]))
		d := hubtest.AddDevice(t, h, ids[0])
		require.NotEqual(t, all[ids[0]], d.PrimaryKey+d.SecondaryKey)
		return all
	}
	require.Equal(t, keys(7, "a", "b"), keys(7, "b", "a"))
	require.NotEqual(t, keys(7, "a"), keys(8, "a"))
	require.NotEqual(t, keys(0, "a"), keys(0, "a"))
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := testbroker.New(&testbroker.Options{HostName: "no host"})
	require.ErrorContains(t, err, "HostName")
}

func TestCloseIsHarmlessTwiceAndEndsWaits(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w, mute := hubtest.Login(t, h, d), hubtest.Dial(t, h)
		waiting := make(chan error, 1)
		go func() { waiting <- h.WaitMessages(t.Context(), 1) }()
		synctest.Wait()
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { require.NoError(t, h.Close()) })
		}
		wg.Wait()
		require.Zero(t, time.Since(start))
		require.ErrorIs(t, <-waiting, testbroker.ErrClosed)
		require.Error(t, w.End())
		require.Error(t, mute.End())
		_, err := h.Dial(testbroker.PortMQTT)(t.Context(), "tcp", "hub")
		require.Error(t, err)
		_, err = h.Listen(testbroker.PortMQTT, "127.0.0.1:0")
		require.ErrorIs(t, err, testbroker.ErrClosed)
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	ctx, cancel := hubtest.ContextWithCause(errors.New("enough"))
	defer cancel()
	require.EqualError(t, h.WaitMessages(ctx, 1), "enough")
	_, err := h.Dial(testbroker.PortMQTT)(ctx, "tcp", "hub")
	require.Error(t, err)
}
