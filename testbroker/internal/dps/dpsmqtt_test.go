package dps_test

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

const (
	dpsAnswers  = "$dps/registrations/res/"
	dpsRegister = "$dps/registrations/PUT/iotdps-register/?$rid="
	dpsPoll     = "$dps/registrations/GET/iotdps-get-operationstatus/?$rid="
)

// dpsConnect returns the CONNECT of a registration.
func dpsConnect(d *testbroker.DPS, id, key string) hubtest.Connect {
	return hubtest.Connect{
		Name: "MQTT", Level: 4, Flags: 2, KeepAlive: 60, ClientID: id,
		User:     d.IDScope() + "/registrations/" + id + "/api-version=2019-03-31&ClientVersion=test%2f1.0",
		Password: dpsToken(d, id, key),
	}
}

func dialDPS(t testing.TB, d *testbroker.DPS) *hubtest.Wire {
	conn, err := d.Dial(testbroker.PortMQTT)(t.Context(), "tcp", "dps:1883")
	require.NoError(t, err)
	return hubtest.NewWire(t, conn)
}

// dpsLogin connects and subscribes to answers.
func dpsLogin(t testing.TB, d *testbroker.DPS, id, key string) *hubtest.Wire {
	w := dialDPS(t, d)
	require.Equal(t, []byte{0, 0}, w.Connect(dpsConnect(d, id, key)))
	require.Equal(t, []byte{1}, w.Subscribe(1, dpsAnswers+"#"))
	return w
}

// readDPS reads a PUBLISH with QoS 1, and acknowledges it.
func readDPS(w *hubtest.Wire) (topic string, a dpsAnswer) {
	w.T.Helper()
	body := w.Expect(3)
	n := int(body[0])<<8 | int(body[1])
	topic = string(body[2 : 2+n])
	body = body[2+n:]
	require.NotEqual(w.T, []byte{0, 0}, body[:2], "packet id")
	w.Send(hubtest.Frame(0x40, body[:2]))
	a.body = string(body[2:])
	decodeAnswer(&a)
	return topic, a
}

func TestRegistrationOverMQTT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hubs := newDPS(t, nil, "hub-a.example.test")
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1"})
		w := dpsLogin(t, d, "reg-1", e.PrimaryKey)
		w.Publish(9, dpsRegister+"1", `{"registrationId":"reg-1"}`)
		require.EqualValues(t, 9, w.Acked(), "the PUBACK comes before the answer")
		topic, a := readDPS(w)
		require.Equal(t, dpsAnswers+"202/?$rid=1&retry-after=3", topic)
		require.Equal(t, "assigning", a.Status)
		for _, body := range []string{"", " "} {
			w.Publish(10, dpsPoll+"a%20-2&operationId="+a.OperationID, body)
			require.EqualValues(t, 10, w.Acked())
			topic, result := readDPS(w)
			require.Equal(t, dpsAnswers+"200/?$rid=a%20-2", topic)
			require.Equal(t, "assigned", result.Status)
			require.Equal(t, "hub-a.example.test", result.State.AssignedHub)
			require.Equal(t, a.OperationID, result.OperationID)
		}
		w.Send(hubtest.PublishBytes(0, 0, dpsPoll+"3&operationId=5.unknown", "")) // QoS 0: no PUBACK
		topic, a = readDPS(w)
		require.Equal(t, dpsAnswers+"404/?$rid=3", topic)
		require.Equal(t, 404000, a.ErrorCode)
		w.Ping()
		w.Send([]byte{0xe0, 0})
		require.Error(t, w.End())
		require.Len(t, hubs["hub-a.example.test"].Devices(), 1)
		log := d.Requests()
		require.Len(t, log, 4)
		require.Equal(t, hubdata.MQTT, log[0].Protocol)
		require.EqualValues(t, 1, log[0].Connection)
	})
}

func TestConnectsToTheDPS(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		user := d.IDScope() + "/registrations/reg-1/"
		for name, c := range map[string]struct {
			change func(c *hubtest.Connect)
			code   byte
		}{
			"plain":            {func(*hubtest.Connect) {}, 0},
			"no ClientVersion": {func(c *hubtest.Connect) { c.User = user + "api-version=2019-03-31" }, 0},
			"version twice": {func(c *hubtest.Connect) {
				c.User = user + "api-version=2019-03-31&ClientVersion=" + url.QueryEscape("java") + "&api-version=2019-03-31"
			}, 0},
			"kept session":    {func(c *hubtest.Connect) { c.Flags = 0 }, 0},
			"not enrolled":    {func(c *hubtest.Connect) { *c = dpsConnect(d, "reg-9", e.PrimaryKey) }, 0},
			"old protocol":    {func(c *hubtest.Connect) { c.Level = 3 }, 1},
			"other client id": {func(c *hubtest.Connect) { c.ClientID = "reg-2" }, 2},
			"other version":   {func(c *hubtest.Connect) { c.User = user + "api-version=2001-01-01" }, 4},
			"no version":      {func(c *hubtest.Connect) { c.User = user }, 4},
			"user of a hub":   {func(c *hubtest.Connect) { c.User = "hub.example.test/reg-1/?api-version=2021-04-12" }, 4},
			"not a token":     {func(c *hubtest.Connect) { c.Password = "x" }, 4},
			"other scope": {func(c *hubtest.Connect) {
				c.User = strings.Replace(c.User, testScope, "0ne00ABCDE0", 1)
			}, 5},
			"other key": {func(c *hubtest.Connect) {
				c.Password = dpsToken(d, "reg-1",
					dpsdata.DeriveKey(e.PrimaryKey, "x"))
			}, 5},
			"no password":  {func(c *hubtest.Connect) { c.Password = "" }, 5},
			"other device": {func(c *hubtest.Connect) { c.Password = dpsToken(d, "reg-2", e.PrimaryKey) }, 5},
		} {
			hello := dpsConnect(d, "reg-1", e.PrimaryKey)
			c.change(&hello)
			w := dialDPS(t, d)
			require.Equal(t, []byte{0, c.code}, w.Connect(hello), name)
			if c.code != 0 {
				require.Error(t, w.End(), name)
			}
		}
		w := dpsLogin(t, d, "reg-9", e.PrimaryKey)
		w.Publish(1, dpsRegister+"1", "")
		w.Acked()
		topic, a := readDPS(w)
		require.Equal(t, dpsAnswers+"404/?$rid=1", topic)
		require.Equal(t, 404201, a.ErrorCode)
		next := dpsLogin(t, d, "reg-9", e.PrimaryKey)
		require.Error(t, w.End(), "a newer connection replaces an older one")
		next.Ping()
		time.Sleep(91 * time.Second)
		require.Error(t, next.End(), "the keep-alive has run out")
	})
}

func TestViolationsAtTheDPS(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		for name, packet := range map[string][]byte{
			"no $rid":          hubtest.PublishBytes(2, 1, strings.TrimSuffix(dpsRegister, "$rid="), ""),
			"other topic":      hubtest.PublishBytes(2, 1, "devices/reg-1/messages/events/", ""),
			"QoS 2":            hubtest.PublishBytes(4, 1, dpsRegister+"1", ""),
			"packet id 0":      hubtest.PublishBytes(2, 0, dpsRegister+"1", ""),
			"second CONNECT":   dpsConnect(d, "reg-1", e.PrimaryKey).Bytes(),
			"no filter":        hubtest.Frame(0x82, []byte{0, 1}),
			"unknown packet":   {0xf0, 0},
			"length of 5":      {0x30, 0xff, 0xff, 0xff, 0xff, 1},
			"too long":         {0x30, 0xff, 0xff, 0x7f},
			"short SUBSCRIBE":  hubtest.Frame(0x82, []byte{0}),
			"PUBACK of a kind": {0x42, 0},
		} {
			w := dpsLogin(t, d, "reg-1", e.PrimaryKey)
			w.Send(packet)
			require.Error(t, w.End(), name)
		}
		require.Empty(t, d.Requests())
		w := dpsLogin(t, d, "reg-1", e.PrimaryKey)
		require.Equal(t, []byte{0x80, 1}, w.Subscribe(2, "#", dpsAnswers+"#"))
		w.Send(hubtest.Frame(0xa2, []byte{0, 3}, hubtest.Str(dpsAnswers+"#")))
		require.Equal(t, []byte{0, 3}, w.Expect(hubtest.Unsuback))
		w.Publish(1, dpsRegister+"1", "")
		require.EqualValues(t, 1, w.Acked())
		w.Ping() // without a subscription there is no answer
		fresh := dialDPS(t, d)
		fresh.Send([]byte{0xc0, 0})
		require.Error(t, fresh.End(), "packet before CONNECT")
		silent := dialDPS(t, d)
		require.Error(t, silent.End(), "no CONNECT in time")
	})
}

func TestConnectFaultsOfTheDPSOverMQTT(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		hello := dpsConnect(d, "reg-1", e.PrimaryKey)
		refused := d.Inject(fault.Fault{Kind: fault.RefuseConnect, Device: "reg-1"})
		w := dialDPS(t, d)
		require.Equal(t, []byte{0, 3}, w.Connect(hello))
		require.Equal(t, 1, refused.Fired())
		d.Inject(fault.Fault{Kind: fault.DropConnect})
		w = dialDPS(t, d)
		w.Send(hello.Bytes())
		require.Error(t, w.End())
		d.Inject(fault.Fault{Kind: fault.SlowConnack, Delay: time.Minute})
		w = dialDPS(t, d)
		start := time.Now()
		require.Equal(t, []byte{0, 0}, w.Connect(hello))
		require.Equal(t, time.Minute, time.Since(start))
		d.Inject(fault.Fault{Kind: fault.RefuseSubscribe})
		require.Equal(t, []byte{0x80}, w.Subscribe(1, dpsAnswers+"#"))
		d.Inject(fault.Fault{Kind: fault.SwallowPingresp})
		w.Send([]byte{0xc0, 0})
		w.Ping()
		d.Inject(fault.Fault{Kind: fault.SwallowPuback})
		require.Equal(t, []byte{1}, w.Subscribe(1, dpsAnswers+"#"))
		w.Publish(1, dpsRegister+"1", "")
		_, a := readDPS(w)
		require.Equal(t, "assigning", a.Status)
		d.Inject(fault.Fault{Kind: fault.DropOnSubscribe})
		w.Send(hubtest.Frame(0x82, []byte{0, 7}, append(hubtest.Str(dpsAnswers+"#"), 1)))
		require.Error(t, w.End())
		d.Inject(fault.Fault{Kind: fault.SwallowConnack})
		w = dialDPS(t, d)
		w.Send(hello.Bytes())
		w.Conn.SetReadDeadline(time.Now().Add(time.Hour))
		require.ErrorContains(t, w.End(), "timeout")
	})
}

func TestRegistrationsOnARealPort(t *testing.T) {
	d, _ := newDPS(t, nil, "hub-a.example.test")
	g := enroll(t, d, dpsdata.Enrollment{ID: "grp", Group: true})
	addr, err := d.Listen(testbroker.PortMQTT, "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	for n := range 20 {
		wg.Go(func() {
			id := fmt.Sprint("reg-", n)
			conn, err := net.Dial("tcp", addr.String())
			require.NoError(t, err)
			w := hubtest.NewWire(t, conn)
			require.Equal(t, []byte{0, 0}, w.Connect(dpsConnect(d, id, dpsdata.DeriveKey(g.PrimaryKey, id))))
			require.Equal(t, []byte{1}, w.Subscribe(1, dpsAnswers+"#"))
			w.Publish(1, dpsRegister+"1", "")
			w.Acked()
			_, a := readDPS(w)
			w.Publish(2, dpsPoll+"2&operationId="+a.OperationID, "")
			w.Acked()
			_, a = readDPS(w)
			require.Equal(t, "assigned", a.Status)
		})
	}
	wg.Wait()
	require.NoError(t, d.Wait(t.Context(), func() bool { return len(d.Requests()) == 40 }))
	require.Len(t, d.Registrations(), 20)
}
