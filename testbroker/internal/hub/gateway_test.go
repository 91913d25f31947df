package hub_test

import (
	"crypto/tls"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
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

const (
	gatewayName = "edge-1.example.test"
	toInputIn   = `FROM /messages/modules/source/outputs/out INTO BrokeredEndpoint("/modules/mod-1/inputs/in")`
	toUpstream  = "FROM /messages/* INTO $upstream"
	sourceTopic = "devices/dev-1/modules/source/messages/events/"
)

// An edgeSite is a gateway with the device dev-1 and its modules source and mod-1.
type edgeSite struct {
	*testbroker.Hub
	device, source, mod hubdata.Device
}

// newEdge makes a gateway. Without options, it sends all messages to the hub, and those of the
// source's output "out" also to the input "in" of mod-1.
func newEdge(t testing.TB, o *testbroker.Options) *edgeSite {
	if o == nil {
		o = &testbroker.Options{}
	}
	if o.Gateway == nil {
		o.Gateway = &testbroker.GatewayOptions{Routes: []string{toInputIn, toUpstream}}
	}
	o.Gateway.Name = gatewayName
	h, d := hubtest.NewHub(t, o)
	e := &edgeSite{Hub: h, device: d}
	e.source = hubtest.AddModule(t, h, "dev-1", "source")
	e.mod = hubtest.AddModule(t, h, "dev-1", "mod-1")
	return e
}

// sendAcked publishes messages and waits for their PUBACKs.
func sendAcked(w *hubtest.Wire, topic string, all ...string) {
	w.T.Helper()
	for _, body := range all {
		w.Publish(7, topic, body)
		require.Equal(w.T, uint16(7), w.Acked())
	}
}

func TestClientsReachTheGatewayByItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, nil)
		require.Equal(t, gatewayName, e.GatewayName())
		require.Equal(t, gatewayName, e.ClientTLS().ServerName)
		require.Contains(t, e.ConnectionString("dev-1/mod-1"),
			"HostName=hub.example.test;DeviceId=dev-1;ModuleId=mod-1;GatewayHostName="+gatewayName+";SharedAccessKey=")
		for name, ok := range map[string]bool{gatewayName: true, "localhost": true, "hub.example.test": false} {
			conn, err := e.Dial(testbroker.PortMQTTS)(t.Context(), "tcp", "edge")
			require.NoError(t, err)
			err = tls.Client(conn, &tls.Config{RootCAs: e.RootCAs(), ServerName: name}).Handshake()
			require.Equal(t, ok, err == nil, "%s: %v", name, err)
			conn.Close()
		}
		hubtest.Login(t, e.Hub, e.mod)
		wrong := hubtest.ConnectOf(e.mod)
		wrong.User = gatewayName + "/dev-1/mod-1/?api-version=2021-04-12"
		require.Equal(t, byte(5), hubtest.Dial(t, e.Hub).Connect(wrong)[1], "user names name the hub")
		for _, host := range []string{gatewayName, "hub.example.test"} {
			hubtest.DialFrames(t, e.Hub).Open(&amqpwire.Open{ContainerID: "c", Hostname: host})
		}
		address := "amqps://" + gatewayName + "/devices/dev-1/modules/mod-1/messages/events"
		_, err := hubtest.LoginAMQP(t, e.Hub, e.mod).Session().NewReceiver(t.Context(), address, nil)
		require.NoError(t, err)
		require.Equal(t, 204, hubtest.OverHTTP(t, e.Hub, e.device).Post(hubtest.TelemetryAddress+hubtest.Version,
			"x").StatusCode)
		synctest.Wait()
		require.Equal(t, []string{"x"}, hubtest.Bodies(e.Hub))
	})
}

func TestRoutesTakeMessagesToInputsAndToTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, &testbroker.Options{Gateway: &testbroker.GatewayOptions{Routes: []string{
			toInputIn, "FROM /messages/modules/source/outputs/up INTO $upstream",
			`FROM /messages/modules/mod-1/* INTO BrokeredEndpoint("/modules/gone/inputs/in")`,
		}}})
		w, to := hubtest.Login(t, e.Hub, e.source), listener(t, e.Hub, e.mod)
		sendAcked(w, sourceTopic+"%24.on=out&%24.mid=m-1&%24.ct=application%2Fjson&%24.ctime=2030-01-01T00:00:00Z&a=b/", "1")
		m := hubtest.ReadPublish(to)
		require.Equal(t, modInputs+"in/a=b&%24.ct=application%2Fjson&%24.mid=m-1&%24.cdid=dev-1&%24.cmid=source&"+
			"%24.ctime=2030-01-01T00%3A00%3A00.0000000Z", m.Topic)
		require.Equal(t, "1", m.Body)
		hubtest.Ack(to, m.ID)
		sendAcked(w, sourceTopic+"%24.on=up&%24.cdid=forged", "2")
		sendAcked(w, sourceTopic+"%24.on=other", "3")
		sendAcked(w, sourceTopic, "4")
		sendAcked(to, "devices/dev-1/modules/mod-1/messages/events/", "5")
		sendAcked(hubtest.Login(t, e.Hub, e.device), "devices/dev-1/messages/events/", "6")
		synctest.Wait()
		require.Equal(t, []string{"2"}, hubtest.Bodies(e.Hub))
		up := e.Messages()[0]
		require.Equal(t, []string{"dev-1", "source", "up", "forged"},
			[]string{up.DeviceID, up.ModuleID, up.Output, up.ConnectionDeviceID})
		require.Equal(t, hubdata.Gateway{Name: gatewayName, Forwarded: 1, Unrouted: 4}, e.GatewayState())
		require.Equal(t, []string{"in completed 1"}, inputStates(e.Hub))
	})
}

func TestRoutesNameModulesOfTheEdgeDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, &testbroker.Options{Gateway: &testbroker.GatewayOptions{
			DeviceID: "edge", Routes: []string{`FROM /* INTO BrokeredEndpoint("/modules/mod-1/inputs/in")`},
		}})
		_, err := e.AddDevice("edge")
		require.NoError(t, err)
		_, err = e.AddModule("edge", "mod-1")
		require.NoError(t, err)
		sendAcked(hubtest.Login(t, e.Hub, e.source), sourceTopic, "1")
		require.NoError(t, e.WaitInputs(t.Context(), "edge/mod-1", hubdata.C2DEnqueued, 1))

		other := newEdge(t, &testbroker.Options{Gateway: &testbroker.GatewayOptions{
			Routes: []string{`FROM /* INTO BrokeredEndpoint("/modules/mod-1/inputs/in")`},
		}})
		leaf, err := other.AddDevice("leaf")
		require.NoError(t, err)
		sendAcked(hubtest.Login(t, other.Hub, leaf), "devices/leaf/messages/events/", "1")
		require.NoError(t, other.WaitInputs(t.Context(), "dev-1/mod-1", hubdata.C2DEnqueued, 1))
		require.Equal(t, "leaf", other.InputLog("")[0].C2D.ConnectionDeviceID)
	})
}

// TestTheGatewayAcknowledgesWhatItHasStored delays the first message on its way to the hub.
func TestTheGatewayAcknowledgesWhatItHasStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, nil)
		slow := e.Inject(fault.Fault{Kind: fault.SlowRoute, Delay: time.Minute, Device: "dev-1/source"})
		w := hubtest.Login(t, e.Hub, e.source)
		begin := time.Now()
		sendAcked(w, sourceTopic, "1", "2")
		require.Zero(t, time.Since(begin))
		synctest.Wait()
		require.Equal(t, 1, slow.Fired())
		require.Zero(t, e.Len())
		require.Equal(t, 2, e.Stored())
		require.NoError(t, e.WaitMessages(t.Context(), 2))
		require.Equal(t, time.Minute, time.Since(begin))
		require.Equal(t, []string{"1", "2"}, hubtest.Bodies(e.Hub))
		require.Equal(t, time.Now(), e.Messages()[0].Received)
		require.Zero(t, e.Stored())

		twice := e.Inject(fault.Fault{Kind: fault.ForwardTwice})
		sendAcked(w, sourceTopic+"%24.mid=m", "3", "4")
		require.NoError(t, e.WaitMessages(t.Context(), 5))
		require.Equal(t, []string{"3", "3", "4"}, hubtest.Bodies(e.Hub)[2:])
		require.Equal(t, 1, twice.Fired())
		require.Equal(t, 5, e.GatewayState().Forwarded)

		twice = e.Inject(fault.Fault{Kind: fault.ForwardTwice, Times: -1})
		sendAcked(w, sourceTopic, "5", "6")
		require.NoError(t, e.WaitMessages(t.Context(), 9))
		require.Equal(t, []string{"5", "5", "6", "6"}, hubtest.Bodies(e.Hub)[5:])
		require.Equal(t, 2, twice.Fired())
	})
}

func TestAnOfflineGatewayStoresAndForwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, nil)
		w := hubtest.Login(t, e.Hub, e.source)
		sendAcked(w, sourceTopic, "0")
		require.NoError(t, e.WaitMessages(t.Context(), 1))
		require.NoError(t, e.SetOffline(true))
		require.NoError(t, e.SetOffline(true))
		sendAcked(w, sourceTopic, "old")
		time.Sleep(time.Hour)
		w = hubtest.Login(t, e.Hub, e.source)
		to := listener(t, e.Hub, e.mod)
		sendAcked(w, sourceTopic+"%24.on=out", "1")
		require.Equal(t, "1", hubtest.ReadPublish(to).Body, "routes to inputs work")
		sender, err := hubtest.LoginAMQP(t, e.Hub, e.device).Session().NewSender(t.Context(), hubtest.TelemetryAddress, nil)
		require.NoError(t, err)
		require.NoError(t, sender.Send(t.Context(), hubtest.Body("2"), nil))
		synctest.Wait()
		require.Equal(t, 1, e.Len())
		require.Equal(t, 3, e.Stored())
		time.Sleep(time.Hour)
		require.Equal(t, hubdata.Gateway{Name: gatewayName, Offline: true, Stored: 2, Forwarded: 1, Expired: 1},
			e.GatewayState())
		require.NoError(t, e.SetOffline(false))
		require.NoError(t, e.WaitMessages(t.Context(), 3))
		require.Equal(t, []string{"0", "1", "2"}, hubtest.Bodies(e.Hub))
		require.Zero(t, e.Stored())

		// It goes off-line while a message is on its way.
		w = hubtest.Login(t, e.Hub, e.source)
		e.Inject(fault.Fault{Kind: fault.SlowRoute, Delay: time.Second})
		sendAcked(w, sourceTopic, "3")
		synctest.Wait()
		require.NoError(t, e.SetOffline(true))
		time.Sleep(time.Minute)
		require.Equal(t, 3, e.Len())
		require.NoError(t, e.SetOffline(false))
		require.NoError(t, e.WaitMessages(t.Context(), 4))
	})
}

// The gateway goes off-line, or stops, just before a message reaches the hub's log.
func TestAGatewayLooksAgainBeforeItForwards(t *testing.T) {
	for name, change := range map[string]func(e *edgeSite){
		"off-line": func(e *edgeSite) { require.NoError(t, e.SetOffline(true)) },
		"stopped":  func(e *edgeSite) { require.NoError(t, e.StopGateway()) },
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			var e *edgeSite
			var once atomic.Bool
			now := func() time.Time {
				var stack [8 << 10]byte
				if strings.Contains(string(stack[:runtime.Stack(stack[:], false)]), ".forward(") && !once.Swap(true) {
					change(e)
				}
				return time.Now()
			}
			e = newEdge(t, &testbroker.Options{Now: now})
			hubtest.Login(t, e.Hub, e.source).Publish(1, sourceTopic, "1") // a stop may overtake the PUBACK
			synctest.Wait()
			require.True(t, once.Load())
			require.Zero(t, e.Len())
			require.Equal(t, 1, e.Stored())
			require.NoError(t, e.SetOffline(false))
			require.NoError(t, e.StartGateway())
			require.NoError(t, e.WaitMessages(t.Context(), 1))
		})
	}
}

func TestAnOfflineGatewayHasCopiesOfTwins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, nil)
		w := hubtest.Login(t, e.Hub, e.mod)
		w.Subscribe(0, hubtest.TwinResults)
		w.Subscribe(0, hubtest.DesiredTopics)
		_, err := e.SetDesired("dev-1/mod-1", `{"a":{"x":1,"y":2},"b":1,"same":[1]}`)
		require.NoError(t, err)
		hubtest.Received(w)
		topic, _ := hubtest.Request(w, hubtest.TwinPatch+"1", `{"fan":{"on":true,"speed":1},"old":1}`)
		require.Equal(t, "$iothub/twin/res/204/?$rid=1&$version=2", topic)
		require.NoError(t, e.SetOffline(true))

		for _, patch := range []string{`{"a":{"x":null,"z":{"deep":1}}}`, `{"b":2}`, `{"b":3,"c":"new"}`} {
			_, err = e.PatchDesired("dev-1/mod-1", patch)
			require.NoError(t, err)
		}
		topic, _ = hubtest.Request(w, hubtest.TwinPatch+"2", `{"fan":null,"old":null}`)
		require.Equal(t, "$iothub/twin/res/204/?$rid=2&$version=3", topic)
		topic, _ = hubtest.Request(w, hubtest.TwinPatch+"3", `{"fan":{"speed":2}}`)
		require.Equal(t, "$iothub/twin/res/204/?$rid=3&$version=4", topic)
		topic, _ = hubtest.Request(w, hubtest.TwinPatch+"4&$version=3", `{}`)
		require.Contains(t, topic, "/res/412/")
		_, document := hubtest.Request(w, hubtest.TwinGet+"5", "")
		require.Equal(t, `{"desired":{"$version":2,"a":{"x":1,"y":2},"b":1,"same":[1]},`+
			`"reported":{"$version":4,"fan":{"speed":2}}}`, document)
		twin, err := e.Twin("dev-1/mod-1")
		require.NoError(t, err)
		require.Equal(t, `{"fan":{"on":true,"speed":1},"old":1}`, string(twin.Reported), "the hub does not know yet")
		require.EqualValues(t, 5, twin.DesiredVersion)
		hubtest.Login(t, e.Hub, e.source).Subscribe(0, hubtest.TwinResults)
		hubtest.Quiet(w)

		require.NoError(t, e.SetOffline(false))
		topic, patch := hubtest.Received(w)
		require.Equal(t, "$iothub/twin/PATCH/properties/desired/?$version=5", topic)
		require.Equal(t, `{"$version":5,"a":{"x":null,"z":{"deep":1}},"b":3,"c":"new"}`, patch)
		twin, err = e.Twin("dev-1/mod-1")
		require.NoError(t, err)
		require.Equal(t, `{"fan":{"speed":2}}`, string(twin.Reported))
		require.EqualValues(t, 3, twin.ReportedVersion, "the patches are merged into one")
		_, document = hubtest.Request(w, hubtest.TwinGet+"6", "")
		require.Equal(t, `{"desired":{"$version":5,"a":{"y":2,"z":{"deep":1}},"b":3,"c":"new","same":[1]},`+
			`"reported":{"$version":3,"fan":{"speed":2}}}`, document)
		_, err = e.PatchDesired("dev-1/mod-1", `{"b":4}`)
		require.NoError(t, err)
		topic, _ = hubtest.Received(w)
		require.Equal(t, "$iothub/twin/PATCH/properties/desired/?$version=6", topic)
	})
}

// TestATwinThatIsNewToAnOfflineGateway is used for the first time while the gateway is off-line.
func TestATwinThatIsNewToAnOfflineGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, nil)
		require.NoError(t, e.SetOffline(true))
		w := hubtest.Login(t, e.Hub, e.mod)
		w.Subscribe(0, hubtest.TwinResults)
		hubtest.Request(w, hubtest.TwinPatch+"1", `{"a":1}`)
		twin, err := e.Twin("dev-1/mod-1")
		require.NoError(t, err)
		require.Equal(t, `{}`, string(twin.Reported))
		require.NoError(t, e.SetOffline(false))
		require.NoError(t, e.WaitReported(t.Context(), "dev-1/mod-1", func(w hubdata.Twin) bool {
			return string(w.Reported) == `{"a":1}`
		}))
	})
}

func TestAnOfflineGatewayGetsNoCallsAndNoC2DMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, nil)
		w := hubtest.Receiver(t, e.Hub, e.device, 1)
		w.Subscribe(0, hubtest.MethodTopics)
		lost := hubtest.Call(t, e.Hub, "dev-1", hubdata.MethodCall{Name: "lost"})
		rid, _ := hubtest.Asked(w, "lost")
		require.NoError(t, e.SetOffline(true))
		hubtest.AnswerCall(w, 200, rid, "1")
		w.Ping()
		require.Equal(t, 404103, hubtest.Call(t, e.Hub, "dev-1", hubdata.MethodCall{Name: "x"}).Code())
		later := hubtest.Call(t, e.Hub, "dev-1", hubdata.MethodCall{Name: "later", ConnectTimeout: time.Minute})
		hubtest.Enqueue(t, e.Hub, "c2d")
		hubtest.Quiet(w)
		require.Equal(t, []string{"enqueued 0"}, hubtest.States(e.Hub))
		require.Equal(t, 204, hubtest.OverHTTP(t, e.Hub, e.device).Do("GET", hubtest.Inbound+hubtest.Version, "").StatusCode)
		require.Equal(t, 504101, lost.Code())
		require.NoError(t, e.SetOffline(false))
		first, err := w.In.Peek(1)
		require.NoError(t, err)
		if first[0] == 0x30 { // the method, otherwise the C2D message comes first
			rid, _ = hubtest.Asked(w, "later")
			require.Equal(t, []string{"c2d"}, hubtest.ReadBodies(w, 1))
		} else {
			require.Equal(t, []string{"c2d"}, hubtest.ReadBodies(w, 1))
			rid, _ = hubtest.Asked(w, "later")
		}
		hubtest.AnswerCall(w, 201, rid, "2")
		require.Equal(t, 201, later.Result().Status)
	})
}

func TestTheStoreOutlivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := make(chan event.Event, 1000)
		e := newEdge(t, &testbroker.Options{OnEvent: func(v event.Event) { events <- v },
			Gateway: &testbroker.GatewayOptions{Routes: []string{toInputIn, toUpstream}}})
		require.NoError(t, e.SetOffline(true))
		to, _ := hubtest.Keeper(t, e.Hub, e.mod)
		to.Subscribe(1, modInputs+"#")
		w := hubtest.Login(t, e.Hub, e.source)
		sendAcked(w, sourceTopic+"%24.on=out", "1", "2")
		require.Equal(t, []string{"1", "2"}, hubtest.ReadBodies(to, 2))
		p := hubtest.Login(t, e.Hub, e.device)
		p.Subscribe(0, hubtest.TwinResults)
		hubtest.Request(p, hubtest.TwinPatch+"1", `{"a":1}`)
		require.NoError(t, e.StopGateway())
		require.Error(t, w.End())
		require.Error(t, to.End())
		_, err := e.Dial(testbroker.PortMQTT)(t.Context(), "tcp", "edge")
		require.ErrorContains(t, err, "refused")
		require.NoError(t, e.SetOffline(false))
		time.Sleep(time.Minute)
		require.Zero(t, e.Len(), "it is stopped")
		twin, err := e.Twin("dev-1")
		require.NoError(t, err)
		require.Equal(t, `{}`, string(twin.Reported))
		require.Equal(t, 2, e.Stored())
		require.Zero(t, e.Connections(""))
		require.NoError(t, e.StartGateway())
		require.NoError(t, e.WaitMessages(t.Context(), 2))
		twin, err = e.Twin("dev-1")
		require.NoError(t, err)
		require.Equal(t, `{"a":1}`, string(twin.Reported))
		again, present := hubtest.Keeper(t, e.Hub, e.mod)
		require.Equal(t, byte(1), present)
		require.Equal(t, []string{"+1", "+2"}, hubtest.ReadBodies(again, 2))

		var seen []string
		for len(events) > 0 {
			if v := <-events; v.Kind == event.GatewayChanged {
				seen = append(seen, v.String())
			}
		}
		require.Equal(t, []string{"gateway off-line", "gateway stopped", "gateway stopped", "gateway on-line"}, seen)
	})
}

func TestResetOfAGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, nil)
		w := hubtest.Login(t, e.Hub, e.source)
		e.Inject(fault.Fault{Kind: fault.SlowRoute, Delay: time.Hour, Times: -1})
		sendAcked(w, sourceTopic+"%24.on=out", "1", "2")
		require.NoError(t, e.SetOffline(true))
		require.NoError(t, e.StopGateway())
		e.Reset()
		require.Equal(t, hubdata.Gateway{Name: gatewayName}, e.GatewayState())
		time.Sleep(2 * time.Hour)
		require.Zero(t, e.Len())
		require.Empty(t, e.InputLog(""))
		sendAcked(hubtest.Login(t, e.Hub, e.source), sourceTopic+"%24.on=out", "3")
		require.NoError(t, e.WaitMessages(t.Context(), 1))
		require.NoError(t, e.WaitInputs(t.Context(), "", hubdata.C2DEnqueued, 1))
	})
}

func TestAGatewayStopsAfterSixteenUnacknowledgedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, nil)
		l, err := hubtest.LoginAMQP(t, e.Hub, e.mod).Session().NewReceiver(t.Context(), modEvents,
			&amqp.ReceiverOptions{Credit: 100})
		require.NoError(t, err)
		for i := range 20 {
			toInput(t, e.Hub, "in", fmt.Sprint(i))
		}
		synctest.Wait()
		require.Equal(t, 16, e.CountInputs("", hubdata.C2DInvisible))
		m, err := l.Receive(hubtest.Soon(t), nil)
		require.NoError(t, err)
		require.NoError(t, l.AcceptMessage(t.Context(), m))
		synctest.Wait()
		require.Equal(t, 16, e.CountInputs("", hubdata.C2DInvisible))
		require.Equal(t, 3, e.CountInputs("", hubdata.C2DEnqueued))
	})
}

func TestAGatewayLosesASettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, nil)
		w := listener(t, e.Hub, e.mod)
		lost := e.Inject(fault.Fault{Kind: fault.LoseSettlement, Times: 2})
		toInput(t, e.Hub, "in", "x")
		hubtest.Ack(w, hubtest.ReadPublish(w).ID)
		w.Ping()
		require.Equal(t, []string{"in invisible 1"}, inputStates(e.Hub))
		time.Sleep(time.Minute)
		again := hubtest.ReadPublish(w)
		require.True(t, again.DUP)
		w.Conn.Close()
		synctest.Wait()
		l, err := hubtest.LoginAMQP(t, e.Hub, e.mod).Session().NewReceiver(t.Context(), modEvents, nil)
		require.NoError(t, err)
		for range 2 {
			m, err := l.Receive(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, l.AcceptMessage(t.Context(), m))
		}
		synctest.Wait()
		require.Equal(t, 2, lost.Fired())
		require.Equal(t, []string{"in completed 4"}, inputStates(e.Hub))
	})
}

// TestManyMessagesThroughTheSessionWindow sends more messages than the window has places, which the
// gateway renews by flow frames alone.
func TestManyMessagesThroughTheSessionWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		e := newEdge(t, &testbroker.Options{AMQP: testbroker.AMQPOptions{Mechanisms: []string{"ANONYMOUS", "EXTERNAL"},
			SessionWindow: 2048, Credit: 5000}})
		l := hubtest.LoginAMQP(t, e.Hub, e.source).Telemetry(e.source)
		for i := range n {
			require.NoError(t, l.Send(t.Context(), hubtest.Body(fmt.Sprint(i)), nil))
		}
		require.NoError(t, e.WaitMessages(t.Context(), n))
		for i, m := range e.Messages() {
			require.Equal(t, fmt.Sprint(i), string(m.Body))
		}
	})
}

func TestSASLMechanismsAreThoseOfTheOptions(t *testing.T) {
	for _, c := range []struct {
		option  []string
		offered []amqpwire.Symbol
		code    uint8 // of MSSBCBS
	}{
		{nil, []amqpwire.Symbol{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"}, amqpwire.SASLOK},
		{[]string{"ANONYMOUS", "PLAIN"}, []amqpwire.Symbol{"ANONYMOUS", "PLAIN"}, amqpwire.SASLAuth},
	} {
		h, _ := hubtest.NewHub(t, &testbroker.Options{AMQP: testbroker.AMQPOptions{Mechanisms: c.option}})
		p := hubtest.DialFrames(t, h)
		header := amqpwire.ProtocolHeader(amqpwire.ProtocolSASL)
		p.Send(header[:])
		require.Equal(t, amqpwire.ProtocolSASL, p.Header())
		offer, _ := hubtest.Want[*amqpwire.Mechanisms](p)
		require.Equal(t, c.offered, offer.Mechanisms)
		p.Say(0, &amqpwire.Init{Mechanism: "MSSBCBS"})
		outcome, _ := hubtest.Want[*amqpwire.Outcome](p)
		require.Equal(t, c.code, outcome.Code)
	}
	_, err := testbroker.New(&testbroker.Options{AMQP: testbroker.AMQPOptions{Mechanisms: []string{"NTLM"}}})
	require.ErrorContains(t, err, `"NTLM"`)
}

func TestLimitsOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, &testbroker.Options{Gateway: &testbroker.GatewayOptions{Clients: 2, KeepAlive: time.Minute}})
		c := hubtest.ConnectOf(e.device)
		c.KeepAlive = 0
		w := hubtest.Dial(t, e.Hub)
		require.Zero(t, w.Connect(c)[1])
		hubtest.Login(t, e.Hub, e.source)
		require.Equal(t, byte(3), hubtest.Dial(t, e.Hub).Connect(hubtest.ConnectOf(e.mod))[1])
		hubtest.Login(t, e.Hub, e.source) // takes the place of the former connection
		peer := hubtest.DialFrames(t, e.Hub)
		header := amqpwire.ProtocolHeader(amqpwire.ProtocolAMQP)
		peer.Send(header[:])
		peer.Header()
		peer.Say(0, &amqpwire.Open{ContainerID: "c", Hostname: gatewayName})
		hubtest.Want[*amqpwire.Open](peer)
		closed, _ := hubtest.Want[*amqpwire.Close](peer)
		require.Equal(t, amqpwire.ResourceLimitExceeded, closed.Error.Condition)
		time.Sleep(90*time.Second + time.Millisecond)
		require.Error(t, w.End(), "1.5 times the longest keep-alive")
	})
}

func TestAGatewayGrantsTheFilterWithoutABag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, nil)
		w := hubtest.Login(t, e.Hub, e.device)
		require.Equal(t, []byte{1}, w.Subscribe(1, "devices/dev-1/messages/devicebound"))
		hubtest.Enqueue(t, e.Hub, "x")
		require.Equal(t, []string{"x"}, hubtest.ReadBodies(w, 1))
		h, d := hubtest.NewHub(t, nil)
		require.Equal(t, []byte{0x80}, hubtest.Login(t, h, d).Subscribe(1, "devices/dev-1/messages/devicebound"))
	})
}

func TestInvalidGatewaysAreRefused(t *testing.T) {
	for want, o := range map[string]testbroker.Options{
		"GatewayOptions.Name":   {Gateway: &testbroker.GatewayOptions{}},
		"GatewayOptions.Routes": {Gateway: &testbroker.GatewayOptions{Name: "g", Routes: []string{"x"}}},
		"exclude each other":    {Gateway: &testbroker.GatewayOptions{Name: "g"}, Broker: &testbroker.BrokerOptions{}},
	} {
		_, err := testbroker.New(&o)
		require.ErrorContains(t, err, want)
	}
	h, _ := hubtest.NewHub(t, nil)
	require.ErrorIs(t, h.SetOffline(true), testbroker.ErrNoGateway)
	require.ErrorIs(t, h.StopGateway(), testbroker.ErrNoGateway)
	require.ErrorIs(t, h.StartGateway(), testbroker.ErrNoGateway)
	require.Zero(t, h.GatewayState())
	require.Empty(t, h.GatewayName())
	require.NotEmpty(t, fault.GatewayKinds())
	for _, k := range fault.GatewayKinds() {
		require.NotZero(t, k.Protocols())
		require.NotContains(t, k.String(), "(")
	}
}

// Days of keep-alive are as many as the broker can count.
func TestTheLongestKeepAliveOfAGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, &testbroker.Options{Gateway: &testbroker.GatewayOptions{KeepAlive: 48 * time.Hour}})
		c := hubtest.ConnectOf(e.device)
		c.KeepAlive = 65535
		w := hubtest.Dial(t, e.Hub)
		require.Zero(t, w.Connect(c)[1])
		time.Sleep(30 * time.Minute)
		w.Ping()
		time.Sleep(30 * time.Minute)
		w.Ping()
	})
}
