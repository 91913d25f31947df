package mqttfront_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

var ready = nextwire.Append(nil, &nextwire.ProbeAck{Ready: &nextwire.Ready{ID: readyID}})

var readyID = []byte("0123456789abcdef")

// probed reads a probe, acknowledges it and returns its id.
func (d *nextDevice) probed(want nextwire.Probe, expiry uint32) nextwire.ID {
	d.t.Helper()
	pk := d.expect(packets.Publish)
	id, ok := nextwire.ParseID(pk.Properties.CorrelationData)
	require.True(d.t, ok)
	require.Equal(d.t, []packets.UserProperty{{Key: "type", Val: nextwire.TypeProbe}}, pk.Properties.User)
	require.Equal(d.t, byte(1), pk.FixedHeader.Qos)
	require.Equal(d.t, expiry, pk.Properties.MessageExpiryInterval)
	var got nextwire.Probe
	require.NoError(d.t, nextwire.Decode(pk.Payload, &got))
	require.Equal(d.t, want, got)
	d.ack(packets.Puback, pk.PacketID, 0)
	return id
}

// execs reads an exec for the ready id, and acknowledges it.
func (d *nextDevice) execs(id nextwire.ID, expiry uint32) (e nextwire.Exec) {
	d.t.Helper()
	pk := d.hear("methods", nextwire.TypeExec, id, &e)
	require.Equal(d.t, expiry, pk.Properties.MessageExpiryInterval)
	require.Equal(d.t, readyID, e.ReadyID)
	d.ack(packets.Puback, pk.PacketID, 0)
	return e
}

func TestAMethodIsProbedAndExecuted(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		d := loginNext(t, h, 1)
		call := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{
			Name: "reboot", Payload: []byte(`{"in":5}`), ResponseTimeout: 300 * time.Second, ConnectTimeout: 10 * time.Second,
		})
		id := d.probed(nextwire.Probe{Method: "reboot", ResponseTimeout: 300}, 10)
		d.say("methods", nextwire.TypeResult, id, &nextwire.Result{Status: 1}) // before the exec: ignored
		time.Sleep(9 * time.Second)
		d.sayBytes("methods", nextwire.TypeProbeAck, id, ready)
		e := d.execs(id, 300)
		require.Equal(t, `{"in":5}`, string(e.Params))
		require.Equal(t, time.Now().Unix(), e.Start.Seconds)
		d.sayBytes("methods", nextwire.TypeProbeAck, id, ready) // again: ignored
		d.say("methods", nextwire.TypeProbeAck, id, &nextwire.ProbeAck{Rejected: &nextwire.Rejected{Reason: 1}})
		time.Sleep(299 * time.Second)
		for range 2 {
			d.say("methods", nextwire.TypeResult, id, &nextwire.Result{Status: 200, Body: []byte(`"ok"`)})
		}
		require.Equal(t, hubdata.MethodResult{Status: 200, Payload: []byte(`"ok"`)}, call.Result())
		d.ping()
		require.Equal(t, []string{"unknown", "taken", "repeated"}, hubtest.Fates(h))
	})
}

func TestWhatCallersGetWithoutAResult(t *testing.T) {
	rejected := func(r nextwire.RejectReason) nextwire.Message {
		return &nextwire.ProbeAck{Rejected: &nextwire.Rejected{Reason: r}}
	}
	for name, c := range map[string]struct {
		typ  string
		m    nextwire.Message // nil: nothing
		code int
	}{
		"no answer":         {"", nil, 404103},
		"not found":         {nextwire.TypeProbeAck, rejected(nextwire.RejectMethodNotFound), 502000},
		"no reason":         {nextwire.TypeProbeAck, rejected(0), 502000},
		"insufficient time": {nextwire.TypeProbeAck, rejected(nextwire.RejectInsufficientTime), 504101},
		"busy":              {nextwire.TypeProbeAck, rejected(nextwire.RejectDeviceBusy), 429001},
		"an empty answer":   {nextwire.TypeProbeAck, &nextwire.ProbeAck{}, 404103},
		"a short ready id":  {nextwire.TypeProbeAck, &nextwire.ProbeAck{Ready: &nextwire.Ready{ID: []byte("x")}}, 404103},
		"abandoned":         {nextwire.TypeAbandon, &nextwire.Abandon{Reason: nextwire.AbandonReadyWaitTimeout}, 504101},
		"ready and silent":  {nextwire.TypeProbeAck, &nextwire.ProbeAck{Ready: &nextwire.Ready{ID: readyID}}, 504101},
	} {
		t.Run(name, func(t *testing.T) {
			inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
				d := loginNext(t, h, 1)
				call := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "m"})
				id := d.probed(nextwire.Probe{Method: "m", ResponseTimeout: 30}, 30)
				if c.m != nil {
					d.say("methods", c.typ, id, c.m)
				}
				require.Equal(t, c.code, call.Code())
				// The id has ended: nothing about it matters.
				d.sayBytes("methods", nextwire.TypeProbeAck, id, ready)
				d.say("methods", nextwire.TypeAbandon, id, &nextwire.Abandon{})
				require.Equal(t, []error{call.Err}, []error{h.MethodLog("")[0].Err})
			})
		})
	}
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		d, _ := dialNext(t, h, 1, nil)
		d.listen() // and not born
		require.Equal(t, 404103, hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "m"}).Code())
	})
}

// A call survives the connection: the broker sends the probe again if it was not acknowledged, and
// the result may come on the next connection.
func TestCallsSurviveConnections(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		d := loginNext(t, h, 1)
		call := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "m", ConnectTimeout: 20 * time.Second})
		first := d.expect(packets.Publish)
		require.False(t, first.FixedHeader.Dup)
		h.Drop("dev-1")
		time.Sleep(5*time.Second + time.Millisecond)

		second, ack := dialNext(t, h, 2, nil)
		require.True(t, ack.SessionPresent)
		again := second.expect(packets.Publish) // before the birth: the broker sends it, not the hub
		require.True(t, again.FixedHeader.Dup)
		require.Equal(t, first.PacketID, again.PacketID)
		require.Equal(t, uint32(15), again.Properties.MessageExpiryInterval)
		require.Equal(t, first.Payload, again.Payload)
		second.ack(packets.Puback, again.PacketID, 0)
		second.listen()
		second.born(nextwire.Birth{})
		id, _ := nextwire.ParseID(again.Properties.CorrelationData)
		second.sayBytes("methods", nextwire.TypeProbeAck, id, ready)
		second.execs(id, 30)
		second.ping() // the hub has the acknowledgement
		third := loginNext(t, h, 3)
		third.say("methods", nextwire.TypeResult, id, &nextwire.Result{Status: 200})
		require.Equal(t, 200, call.Result().Status)
	})
}

// A lost acknowledgement makes the broker send the message again on the next connection.
func TestALostAcknowledgementRepeatsAProbe(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		d := loginNext(t, h, 1)
		h.Inject(fault.Fault{Kind: fault.DropOnReceipt})
		call := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "m"})
		d.probed(nextwire.Probe{Method: "m", ResponseTimeout: 30}, 30)
		d.ended()
		d, _ = dialNext(t, h, 2, nil)
		pk := d.expect(packets.Publish)
		require.True(t, pk.FixedHeader.Dup)
		d.ack(packets.Puback, pk.PacketID, 0)
		require.Equal(t, 404103, call.Code())
	})
}

// A message waits for the client's window, and its expiry runs meanwhile.
func TestMessagesWaitForTheWindow(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		d, _ := dialNext(t, h, 1, func(pk *packets.Packet) { pk.Properties.ReceiveMaximum = 1 })
		d.listen()
		d.born(nextwire.Birth{})
		calls := make([]*hubtest.Calling, 3)
		for i, timeout := range []time.Duration{30, 5, 30} {
			calls[i] = hubtest.Call(t, h, "dev-1", hubdata.MethodCall{
				Name: string(rune('a' + i)), ConnectTimeout: timeout * time.Second,
			})
			synctest.Wait()
		}
		first := d.expect(packets.Publish)
		d.ping() // nothing more
		time.Sleep(10*time.Second + 300*time.Millisecond)
		require.Equal(t, 404103, calls[1].Code())
		d.ack(packets.Puback, first.PacketID, 0)
		d.probed(nextwire.Probe{Method: "c", ResponseTimeout: 30}, 20) // b has expired
		d.ping()
	})
}

// The queue of a session holds 100 messages. With one more the session is gone.
func TestAnOverflowDestroysTheSession(t *testing.T) {
	for name, c := range map[string]struct {
		calls int
		ready bool // the parameters of 100 KB wait, not the probes
		kept  bool
	}{
		"100 messages": {100, false, true}, "101 messages": {101, false, false},
		"1 MB": {10, true, true}, "more than 1 MB": {11, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
				d, _ := dialNext(t, h, 1, nil)
				d.listen()
				d.born(nextwire.Birth{})
				payload := []byte(`"` + strings.Repeat("x", 100_000) + `"`)
				for i := range c.calls {
					hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "m", Payload: payload})
					synctest.Wait()
					if c.ready {
						id := d.probed(nextwire.Probe{Method: "m", ResponseTimeout: 30}, 30)
						d.sayBytes("methods", nextwire.TypeProbeAck, id, ready)
					}
					switch {
					case c.kept || i < c.calls-1:
						d.expect(packets.Publish) // and no acknowledgement
					default:
						require.Equal(t, byte(0x97), d.disconnected().ReasonCode)
					}
				}
				_, kept := h.Session("dev-1")
				require.Equal(t, c.kept, kept)
				h.Drop("dev-1")
				synctest.Wait()
				_, ack := dialNext(t, h, 2, nil)
				require.Equal(t, c.kept, ack.SessionPresent)
			})
		})
	}
}

func TestFaultsOfMethodsWithAProbe(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		d := loginNext(t, h, 1)
		probe := nextwire.Probe{Method: "m", ResponseTimeout: 30}
		begin := func(f fault.Fault) *hubtest.Calling {
			h.Inject(f)
			return hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "m"})
		}
		finish := func(call *hubtest.Calling, id nextwire.ID) {
			t.Helper()
			d.say("methods", nextwire.TypeResult, id, &nextwire.Result{Status: 200})
			require.Equal(t, 200, call.Result().Status)
		}

		call := begin(fault.Fault{Kind: fault.DuplicateMethod})
		id := d.probed(probe, 30)
		require.Equal(t, id, d.probed(probe, 30))
		d.sayBytes("methods", nextwire.TypeProbeAck, id, ready)
		d.execs(id, 30)
		finish(call, id)

		call = begin(fault.Fault{Kind: fault.DuplicateDispatch, Message: "exec"})
		id = d.probed(probe, 30)
		d.sayBytes("methods", nextwire.TypeProbeAck, id, ready)
		d.execs(id, 30)
		d.execs(id, 30)
		finish(call, id)

		call = begin(fault.Fault{Kind: fault.ExecWithoutProbe, Method: "m"})
		var e nextwire.Exec
		pk := d.expect(packets.Publish)
		require.NoError(t, nextwire.Decode(pk.Payload, &e))
		require.Len(t, e.ReadyID, 16)
		d.ack(packets.Puback, pk.PacketID, 0)
		require.Equal(t, 404103, call.Code())

		for _, f := range []struct {
			fault  fault.Fault
			expiry uint32
		}{
			{fault.Fault{Kind: fault.WrongExpiry, Message: "probe"}, 0},
			{fault.Fault{Kind: fault.WrongExpiry, Message: "probe", Delay: time.Second}, 1},
			{fault.Fault{Kind: fault.OmitExpiry, Message: "probe"}, 0},
		} {
			call = begin(f.fault)
			pk = d.expect(packets.Publish)
			require.Equal(t, f.expiry, pk.Properties.MessageExpiryInterval)
			d.ack(packets.Puback, pk.PacketID, 0)
			<-call.Done
		}
	})
}
