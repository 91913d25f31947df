package testbroker_test

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
)

// goldenKey encodes the bytes 00 to 1f.
const goldenKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHub(t, &testbroker.Options{HostName: "hub1.example.test"})
				if c.device != "dev-1" {
					_, err := h.AddDevice(c.device)
					require.NoError(t, err)
				}
				id := c.device
				if c.module != "" {
					_, err := h.AddModule(c.device, c.module)
					require.NoError(t, err)
					id += "/" + c.module
				}
				require.NoError(t, h.SetKeys(id, goldenKey, goldenKey))
				h.SetPolicyKey("device", goldenKey)
				w := dial(t, h)
				require.Equal(t, []byte{0, 0}, w.connect(connect{
					name: "MQTT", level: 4, flags: 2, keepAlive: 60, clientID: id,
					user: "hub1.example.test/" + id + "/?api-version=2021-04-12", password: "SharedAccessSignature " + c.token,
				}))
				require.Equal(t, 1, h.Connections(id))
			})
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
	change func(*connect, connackWorld)
}

func connackCases(t *testing.T) map[string]connackCase {
	soon := func() int64 { return time.Now().Add(time.Hour).Unix() }
	tok := func(f func(w connackWorld) string) func(*connect, connackWorld) {
		return func(c *connect, w connackWorld) { c.password = f(w) }
	}
	user := func(s string) func(*connect, connackWorld) { return func(c *connect, _ connackWorld) { c.user = s } }
	const sr = "hub.example.test%2Fdevices%2Fdev-1"
	return map[string]connackCase{
		"all in order":  {0, func(*connect, connackWorld) {}},
		"session kept":  {0, func(c *connect, _ connackWorld) { c.flags = 0 }},
		"secondary key": {0, tok(func(w connackWorld) string { return sign(sr, w.dev.SecondaryKey, soon()) })},
		"lower-case hex": {0,
			tok(func(w connackWorld) string {
				return sign("hub.example.test%2fdevices%2fdev-1", w.dev.PrimaryKey, soon())
			})},
		"resource not encoded": {0,
			tok(func(w connackWorld) string { return sign("hub.example.test/devices/dev-1", w.dev.PrimaryKey, soon()) })},
		"resource encoded twice": {0,
			tok(func(w connackWorld) string {
				return sign("hub.example.test%2Fdevices%2Fdev%252D1", w.dev.PrimaryKey, soon())
			})},
		"host in capitals": {0,
			tok(func(w connackWorld) string {
				return sign("HUB.example.test%2Fdevices%2Fdev-1", w.dev.PrimaryKey, soon())
			})},
		"name for devices": {0, func(c *connect, w connackWorld) {
			c.user = "hub.device.example.test/dev-1/?api-version=2021-04-12"
			c.password = sign("hub.device.example.test%2Fdevices%2Fdev-1", w.dev.PrimaryKey, soon())
		}},
		"name for devices of another hub": {5, user("hub2.device.example.test/dev-1/?api-version=2021-04-12")},
		"token without a hub": {5, tok(func(w connackWorld) string {
			return sign("%2Fdevices%2Fdev-1", w.dev.PrimaryKey, soon())
		})},
		"no query":         {0, user("hub.example.test/dev-1")},
		"slash only":       {0, user("hub.example.test/dev-1/")},
		"no question mark": {0, user("hub.example.test/dev-1/api-version=2020-09-30")},
		"model id raw": {0,
			user("hub.example.test/dev-1/?api-version=2020-09-30&model-id=dtmi:com:example:Thermostat;1&DeviceClientType=a/b")},
		"preview version": {0, user("Hub.Example.Test/dev-1/?api-version=2020-05-31-preview")},
		"policy for whole hub": {0, tok(func(w connackWorld) string {
			return sign("hub.example.test", w.policy.PrimaryKey, soon()) + "&skn=" + w.policy.Name
		})},
		"policy for all devices": {0, tok(func(w connackWorld) string {
			return sign("hub.example.test%2Fdevices", w.policy.SecondaryKey, soon()) + "&skn=" + w.policy.Name
		})},
		"module": {0, func(c *connect, w connackWorld) { *c = connectOf(w.mod) }},
		"module by device's scope": {0,
			func(c *connect, w connackWorld) {
				*c = connectOf(w.mod)
				c.password = sign(sr, w.mod.PrimaryKey, soon())
			}},
		"within the grace": {0, tok(func(w connackWorld) string {
			return sign(sr, w.dev.PrimaryKey, time.Now().Add(time.Second-5*time.Minute).Unix())
		})},
		"expiry beyond all time": {0, tok(func(w connackWorld) string { return sign(sr, w.dev.PrimaryKey, 1<<62) })},

		"level 3":                {1, func(c *connect, _ connackWorld) { c.name, c.level = "MQIsdp", 3 }},
		"level 3 by the name 4":  {1, func(c *connect, _ connackWorld) { c.name = "MQIsdp" }},
		"level 5":                {1, func(c *connect, _ connackWorld) { c.level = 5 }},
		"level 6":                {1, func(c *connect, _ connackWorld) { c.level = 6 }},
		"client id of another":   {2, func(c *connect, _ connackWorld) { c.clientID = "dev-2" }},
		"client id of a module":  {2, func(c *connect, _ connackWorld) { c.clientID = "dev-1/mod-1" }},
		"client id missing":      {2, func(c *connect, _ connackWorld) { c.clientID = "" }},
		"client id missing, old": {2, func(c *connect, _ connackWorld) { c.clientID, c.flags = "", 0 }},

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

		"no token":         {5, func(c *connect, _ connackWorld) { c.password = "" }},
		"empty password":   {5, func(c *connect, _ connackWorld) { c.password = ""; c.flags |= 0x40; c.user += "\x00" }},
		"key of another":   {5, tok(func(w connackWorld) string { return sign(sr, w.two.PrimaryKey, soon()) })},
		"token of another": {5, tok(func(w connackWorld) string { return token(w.two) })},
		"shorter id": {5, tok(func(w connackWorld) string {
			return sign("hub.example.test%2Fdevices%2Fdev", w.dev.PrimaryKey, soon())
		})},
		"id in capitals": {5, tok(func(w connackWorld) string {
			return sign("hub.example.test%2Fdevices%2FDEV-1", w.dev.PrimaryKey, soon())
		})},
		"another hub's token": {5, tok(func(w connackWorld) string {
			return sign("hub2.example.test%2Fdevices%2Fdev-1", w.dev.PrimaryKey, soon())
		})},
		"a module's token":      {5, tok(func(w connackWorld) string { return token(w.mod) })},
		"device's for a module": {5, func(c *connect, w connackWorld) { *c = connectOf(w.mod); c.password = token(w.dev) }},
		"expired": {5, tok(func(w connackWorld) string {
			return sign(sr, w.dev.PrimaryKey, time.Now().Add(-5*time.Minute-time.Second).Unix())
		})},
		"expiry changed": {5,
			tok(func(w connackWorld) string { return strings.Replace(token(w.dev), "&se=", "&se=1", 1) })},
		"policy unknown":         {5, tok(func(w connackWorld) string { return token(w.dev) + "&skn=nobody" })},
		"policy with device key": {5, tok(func(w connackWorld) string { return token(w.dev) + "&skn=" + w.policy.Name })},
		"policy, no such device": {5, func(c *connect, w connackWorld) {
			c.user, c.clientID = "hub.example.test/dev-9", "dev-9"
			c.password = sign("hub.example.test", w.policy.PrimaryKey, soon()) + "&skn=" + w.policy.Name
		}},
		"device unknown":  {5, func(c *connect, w connackWorld) { require.NoError(t, w.hub.RemoveDevice("dev-1")) }},
		"device disabled": {5, func(c *connect, w connackWorld) { require.NoError(t, w.hub.SetEnabled("dev-1", false)) }},
		"its module as well": {5, func(c *connect, w connackWorld) {
			*c = connectOf(w.mod)
			require.NoError(t, w.hub.SetEnabled("dev-1", false))
		}},
		"module unknown": {5, func(c *connect, w connackWorld) {
			*c = connectOf(w.mod)
			require.NoError(t, w.hub.RemoveDevice("dev-1/mod-1"))
		}},
		"another hub's name": {5, user("hub2.example.test/dev-1/?api-version=2021-04-12")},
		"keys were changed": {5, func(c *connect, w connackWorld) {
			require.NoError(t, w.hub.SetKeys("dev-1", goldenKey, goldenKey))
		}},
	}
}

// TestConnackCodes changes one thing in a valid CONNECT and checks the answer.
func TestConnackCodes(t *testing.T) {
	for name, c := range connackCases(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var last event.Event
				h, dev := newHub(t, &testbroker.Options{OnEvent: func(e event.Event) { last = e }})
				w := connackWorld{hub: h, dev: dev}
				var err error
				w.mod, err = h.AddModule("dev-1", "mod-1")
				require.NoError(t, err)
				w.two, err = h.AddDevice("dev-2")
				require.NoError(t, err)
				w.policy, err = h.AddPolicy("device")
				require.NoError(t, err)

				con := connectOf(dev)
				c.change(&con, w)
				raw := con.bytes()
				if strings.HasSuffix(con.user, "\x00") { // a password that is present but empty
					con.user = strings.TrimSuffix(con.user, "\x00")
					raw = con.bytes()
					raw = append(raw, 0, 0)
					raw[1] += 2
				}
				client := dial(t, h)
				client.send(raw)
				require.Equal(t, []byte{0, c.want}, client.expect(connack))
				if c.want == 0 {
					client.ping()
					return
				}
				require.Equal(t, io.EOF, client.end(), "the hub closes after the refusal")
				client.conn.Close()
				synctest.Wait()
				require.Zero(t, h.Connections(""))
				require.Equal(t, event.Refused, last.Kind)
				require.Equal(t, c.want, last.Code)
				require.Error(t, last.Err)
			})
		})
	}
}

func TestClosedWithoutAnswer(t *testing.T) {
	for name, packet := range map[string]func(d hubdata.Device) []byte{
		"unknown protocol": func(d hubdata.Device) []byte { c := connectOf(d); c.name = "MQTX"; return c.bytes() },
		"reserved flag":    func(d hubdata.Device) []byte { c := connectOf(d); c.flags |= 1; return c.bytes() },
		"will flags only":  func(d hubdata.Device) []byte { c := connectOf(d); c.flags |= 0x20; return c.bytes() },
		"will to another": func(d hubdata.Device) []byte {
			c := connectOf(d)
			c.will = &will{topic: "devices/dev-2/messages/events/", body: "x"}
			return c.bytes()
		},
		"will with QoS 2": func(d hubdata.Device) []byte {
			c := connectOf(d)
			c.will = &will{topic: events, body: "x", qos: 2}
			return c.bytes()
		},
		"publish first":   func(hubdata.Device) []byte { return publishBytes(2, 1, events, "x") },
		"half a connect":  func(d hubdata.Device) []byte { return frame(0x10, str("MQTT"), []byte{4}) },
		"request of HTTP": func(hubdata.Device) []byte { return []byte("GET / HTTP/1.1\r\n\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var last event.Event
				h, d := newHub(t, &testbroker.Options{OnEvent: func(e event.Event) { last = e }})
				w := dial(t, h)
				w.send(packet(d))
				require.Equal(t, io.EOF, w.end())
				synctest.Wait()
				require.Equal(t, event.Refused, last.Kind)
				require.Zero(t, last.Code)
				require.Error(t, last.Err)
			})
		})
	}
}

func TestConnectionWithoutConnectIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHub(t, nil)
		start := time.Now()
		w := dial(t, h)
		require.Equal(t, io.EOF, w.end())
		require.Equal(t, time.Minute, time.Since(start))
	})
}

func TestSecondConnectPacketCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		w := login(t, h, d)
		w.send(connectOf(d).bytes())
		require.Equal(t, io.EOF, w.end())
	})
}

func TestNewerConnectionClosesTheOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var causes []string
		h, d := newHub(t, &testbroker.Options{OnEvent: func(e event.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == event.Disconnected {
				causes = append(causes, e.String())
			}
		}})
		mod, err := h.AddModule("dev-1", "mod-1")
		require.NoError(t, err)
		module := login(t, h, mod)
		one := login(t, h, d)
		two := login(t, h, d)
		require.Equal(t, io.EOF, one.end(), "no packet says good-bye")
		two.ping()
		module.ping()
		require.Equal(t, 2, h.Connections("dev-1"))
		require.Equal(t, 1, h.Connections("dev-1/mod-1"))
		require.Equal(t, []string{"#2 dev-1 disconnected: replaced by a newer connection of the same identity"}, causes)
	})
}

func TestConnectionsOfOneDeviceFightOrderly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				w := dial(t, h)
				w.send(connectOf(d).bytes())
				w.read()
			})
		}
		wg.Wait()
		synctest.Wait()
		require.Equal(t, 1, h.Connections(""))
		login(t, h, d).ping()
		require.Equal(t, 1, h.Connections(""))
	})
}

func TestRefusedConnectDoesNotDisturbTheLiveOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		w := login(t, h, d)
		bad := connectOf(d)
		bad.password = sign("hub.example.test%2Fdevices%2Fdev-1", goldenKey, time.Now().Add(time.Hour).Unix())
		require.Equal(t, []byte{0, 5}, dial(t, h).connect(bad))
		w.ping()
	})
}

func TestRegistryCutsConnections(t *testing.T) {
	for name, act := range map[string]func(h *testbroker.Hub) error{
		"disabled": func(h *testbroker.Hub) error { return h.SetEnabled("dev-1", false) },
		"removed":  func(h *testbroker.Hub) error { return h.RemoveDevice("dev-1") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHub(t, nil)
				mod, err := h.AddModule("dev-1", "mod-1")
				require.NoError(t, err)
				other, err := h.AddDevice("dev-10")
				require.NoError(t, err)
				a, b, c := login(t, h, d), login(t, h, mod), login(t, h, other)
				require.NoError(t, act(h))
				require.Equal(t, io.EOF, a.end())
				require.Equal(t, io.EOF, b.end())
				c.ping()
			})
		})
	}
}

func TestEnabledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		require.NoError(t, h.SetEnabled("dev-1", false))
		require.Equal(t, []byte{0, 5}, dial(t, h).connect(connectOf(d)))
		require.NoError(t, h.SetEnabled("dev-1", true))
		login(t, h, d).ping()
	})
}

func TestConnectionEndsWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, &testbroker.Options{TokenGrace: 2 * time.Minute})
		c := connectOf(d)
		c.keepAlive = 0
		start := time.Now()
		c.password = sign("hub.example.test%2Fdevices%2Fdev-1", d.PrimaryKey, start.Add(10*time.Minute).Unix())
		w := dial(t, h)
		require.Equal(t, []byte{0, 0}, w.connect(c))
		require.Equal(t, io.EOF, w.end())
		require.Equal(t, 12*time.Minute, time.Since(start))
	})
}

func TestClockOfTheHubJudgesTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, &testbroker.Options{TokenGrace: -1,
			Now: func() time.Time { return time.Now().Add(59 * time.Minute) }})
		start := time.Now()
		w := login(t, h, d)
		w.publish(1, events, "x")
		w.acked()
		require.Equal(t, start.Add(59*time.Minute), h.Messages()[0].Received)
		require.Equal(t, []byte{0, 5}, func() []byte {
			c := connectOf(d)
			c.password = sign("hub.example.test%2Fdevices%2Fdev-1", d.PrimaryKey, start.Add(58*time.Minute).Unix())
			return dial(t, h).connect(c)
		}())
		w.conn.SetDeadline(time.Time{})
		_, _, err := w.read() // the keep-alive is a minute; the token expires in a minute, without grace
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
		t.Run(fmt.Sprint(keepAlive), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHub(t, nil)
				c := connectOf(d)
				c.keepAlive = keepAlive
				w := dial(t, h)
				require.Equal(t, []byte{0, 0}, w.connect(c))
				time.Sleep(want - time.Second)
				w.ping()
				start := time.Now()
				require.Equal(t, io.EOF, w.end())
				require.Equal(t, want, time.Since(start))
			})
		})
	}
}

// A message counts as a sign of life, but not the beginning of one.
func TestKeepAliveOfAPublishingClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		c := connectOf(d)
		c.keepAlive = 10
		w := dial(t, h)
		require.Equal(t, []byte{0, 0}, w.connect(c))
		for id := range uint16(3) {
			time.Sleep(14 * time.Second)
			w.publish(id+1, "devices/dev-1/messages/events/", "x")
			require.Equal(t, id+1, w.acked())
		}
		start := time.Now()
		time.Sleep(14 * time.Second)
		w.send(publishBytes(2, 4, "devices/dev-1/messages/events/", "x")[:5])
		require.Equal(t, io.EOF, w.end())
		require.Equal(t, 15*time.Second, time.Since(start))
		require.Equal(t, 3, h.Len())
	})
}

// Messages that arrive together are acknowledged together, in order, whatever the pieces. Other
// packets between them are answered in their turn.
func TestMessagesInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		w := login(t, h, d)
		var all []byte
		const n = 200
		for id := uint16(1); id <= n; id++ {
			all = append(all, publishBytes(2, id, "devices/dev-1/messages/events/", strings.Repeat("x", int(id)*7))...)
			if id == n/2 {
				all = append(all, 0xc0, 0) // PINGREQ
			}
		}
		for len(all) > 0 {
			piece := min(len(all), 1+len(all)/3)
			w.send(all[:piece])
			all = all[piece:]
		}
		for id := uint16(1); id <= n; id++ {
			require.Equal(t, id, w.acked())
			if id == n/2 {
				w.expect(pingresp)
			}
		}
		for i, m := range h.Messages() {
			require.Equal(t, strings.Repeat("x", (i+1)*7), string(m.Body))
		}
		require.Equal(t, n, h.Len())
	})
}

func TestKeptSessionIsPresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		c := connectOf(d)
		c.flags = 0
		w := dial(t, h)
		require.Equal(t, []byte{0, 0}, w.connect(c))
		w.subscribe(1, "$iothub/twin/res/#")
		w.conn.Close()
		require.Equal(t, []byte{1, 0}, dial(t, h).connect(c))
		require.Equal(t, []byte{0, 0}, dial(t, h).connect(connectOf(d)), "a clean session is new")
	})
}

func TestRegistry(t *testing.T) {
	h, d := newHub(t, nil)
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
	m, err := h.AddModule("dev-1", "m")
	require.NoError(t, err)
	require.Equal(t, "HostName=hub.example.test;DeviceId=dev-1;SharedAccessKey="+d.PrimaryKey, h.ConnectionString("dev-1"))
	require.Equal(t, "HostName=hub.example.test;DeviceId=dev-1;ModuleId=m;SharedAccessKey="+m.PrimaryKey,
		h.ConnectionString("dev-1/m"))
	require.Empty(t, h.ConnectionString("dev-2"))
	_, err = h.AddPolicy("p")
	require.NoError(t, err)
	_, err = h.AddPolicy("p")
	require.ErrorIs(t, err, testbroker.ErrExists)
	_, err = h.AddPolicy("")
	require.Error(t, err)
	require.Error(t, h.SetKeys("dev-1", "short", "short"))
	require.ErrorIs(t, h.SetKeys("dev-2", goldenKey, goldenKey), testbroker.ErrNotFound)
	require.ErrorIs(t, h.SetEnabled("dev-2", false), testbroker.ErrNotFound)
	require.ErrorIs(t, h.RemoveDevice("dev-2"), testbroker.ErrNotFound)

	require.NoError(t, h.RemoveDevice("dev-1"))
	_, err = h.Device("dev-1/m")
	require.ErrorIs(t, err, testbroker.ErrNotFound, "modules go with their device")
	again, err := h.AddDevice("dev-1")
	require.NoError(t, err)
	require.NotEqual(t, d.PrimaryKey, again.PrimaryKey)
	require.NotEqual(t, d.PrimaryKey, d.SecondaryKey)
}

func TestKeysAreNotPrinted(t *testing.T) {
	h, d := newHub(t, nil)
	p, err := h.AddPolicy("device")
	require.NoError(t, err)
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
			d, err := h.AddDevice(id)
			require.NoError(t, err)
			all[id] = d.PrimaryKey + d.SecondaryKey
		}
		require.NoError(t, h.RemoveDevice(ids[0]))
		d, err := h.AddDevice(ids[0])
		require.NoError(t, err)
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
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		w, mute := login(t, h, d), dial(t, h)
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
		require.Error(t, w.end())
		require.Error(t, mute.end())
		_, err := h.Dial(testbroker.PortMQTT)(t.Context(), "tcp", "hub")
		require.Error(t, err)
		_, err = h.Listen(testbroker.PortMQTT, "127.0.0.1:0")
		require.ErrorIs(t, err, testbroker.ErrClosed)
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	h, _ := newHub(t, nil)
	ctx, cancel := contextWithCause(errors.New("enough"))
	defer cancel()
	require.EqualError(t, h.WaitMessages(ctx, 1), "enough")
	_, err := h.Dial(testbroker.PortMQTT)(ctx, "tcp", "hub")
	require.Error(t, err)
}
