package mqttfront_test

import (
	"bytes"
	"io"
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

// typeOf returns the type of a message of the hub.
func typeOf(pk packets.Packet) string { return pk.Properties.User[0].Val }

func TestFaultsOfADispatch(t *testing.T) {
	for name, c := range map[string]struct {
		fault fault.Fault
		check func(t *testing.T, d *nextDevice)
	}{
		"lost": {fault.Fault{Kind: fault.SwallowDispatch}, func(t *testing.T, d *nextDevice) { d.ping() }},
		"late": {fault.Fault{Kind: fault.SlowDispatch, Delay: time.Minute}, func(t *testing.T, d *nextDevice) {
			start := time.Now()
			d.expect(packets.Publish)
			require.Equal(t, time.Minute, time.Since(start))
		}},
		"twice": {fault.Fault{Kind: fault.DuplicateDispatch}, func(t *testing.T, d *nextDevice) {
			require.Equal(t, d.expect(packets.Publish), d.expect(packets.Publish))
		}},
		"with another nonce": {fault.Fault{Kind: fault.MisnameDispatch}, func(t *testing.T, d *nextDevice) {
			require.NotEqual(t, d.nonce[:], d.expect(packets.Publish).Properties.CorrelationData)
		}},
		"with a given nonce": {
			fault.Fault{Kind: fault.MisnameDispatch, Bytes: readyID}, func(t *testing.T, d *nextDevice) {
				require.Equal(t, readyID, d.expect(packets.Publish).Properties.CorrelationData)
			}},
		"of another version": {fault.Fault{Kind: fault.RetypeDispatch}, func(t *testing.T, d *nextDevice) {
			require.Equal(t, "birth-ack:2", typeOf(d.expect(packets.Publish)))
		}},
		"of another type": {fault.Fault{Kind: fault.RetypeDispatch, Text: "x"}, func(t *testing.T, d *nextDevice) {
			require.Equal(t, "x", typeOf(d.expect(packets.Publish)))
		}},
		"unreadable": {fault.Fault{Kind: fault.GarbleDispatch}, func(t *testing.T, d *nextDevice) {
			require.Error(t, nextwire.Decode(d.expect(packets.Publish).Payload, new(nextwire.BirthAck)))
		}},
		"with a given body": {
			fault.Fault{Kind: fault.GarbleDispatch, Bytes: []byte("ab")}, func(t *testing.T, d *nextDevice) {
				require.Equal(t, "ab", string(d.expect(packets.Publish).Payload))
			}},
	} {
		t.Run(name, func(t *testing.T) {
			inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
				d, _ := dialNext(t, h, 1, nil)
				d.listen()
				other := c.fault
				other.Message = "exec"
				unused := h.Inject(other)
				c.fault.Message = "birth-ack"
				in := h.Inject(c.fault)
				d.say("presence", nextwire.TypeBirth, d.nonce, &nextwire.Birth{})
				c.check(t, d)
				require.Equal(t, 1, in.Fired())
				require.Zero(t, unused.Fired())
			})
		})
	}
}

func TestABirthAckBeforeTheSuback(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		h.Inject(fault.Fault{Kind: fault.EarlyBirthAck})
		d, _ := dialNext(t, h, 1, nil)
		var ack nextwire.BirthAck
		d.hear("presence", nextwire.TypeBirthAck, d.nonce, &ack)
		d.listen()
		d.born(nextwire.Birth{})
	})
}

func TestWrongSessionPresent(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		h.Inject(fault.Fault{Kind: fault.WrongSessionPresent, Times: 2})
		_, ack := dialNext(t, h, 1, nil)
		require.True(t, ack.SessionPresent)
		_, ack = dialNext(t, h, 2, nil)
		require.False(t, ack.SessionPresent)
	})
}

// The faults of twins and of desired properties are those of other hubs.
func TestFaultsOfTwinsWithTheProfile(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		d := loginNext(t, h, 1)
		change := func(f fault.Fault) {
			t.Helper()
			h.Inject(f)
			hubtest.PatchDesired(t, h, "dev-1", `{"a":1}`)
		}
		change(fault.Fault{Kind: fault.SwallowDesired}) // a gap: version 2 is missing
		change(fault.Fault{Kind: fault.DuplicateDesired})
		require.Equal(t, []uint64{3, 3}, []uint64{d.patched().Version, d.patched().Version})
		backwards := nextwire.Append(nil, &nextwire.DesiredPatch{Version: 1}) // and without a payload
		change(fault.Fault{Kind: fault.GarbleDispatch, Message: "desired-patch", Bytes: backwards})
		require.Equal(t, nextwire.DesiredPatch{Version: 1}, d.patched())

		ask := func(f fault.Fault) nextwire.ID {
			f.Operation = hubdata.TwinGet
			h.Inject(f)
			id := d.request()
			d.say("twin", nextwire.TypeTwinGet, id, &nextwire.TwinGet{Sections: nextwire.SectionBoth})
			synctest.Wait()
			return id
		}
		ask(fault.Fault{Kind: fault.SwallowTwin})
		ask(fault.Fault{Kind: fault.RefuseTwin}) // a get has no refusal
		d.ping()
		id := ask(fault.Fault{Kind: fault.MisnameTwin})
		require.NotEqual(t, id[:], d.expect(packets.Publish).Properties.CorrelationData)
		ask(fault.Fault{Kind: fault.GarbleTwin, Bytes: []byte{0xff}})
		require.Equal(t, []byte{0xff}, d.expect(packets.Publish).Payload)
		id = ask(fault.Fault{Kind: fault.DuplicateTwin})
		for range 2 {
			d.hear("twin", nextwire.TypeGetResponse, id, new(nextwire.GetResponse))
		}
	})
}

// Every packet that can refuse has every code.
func TestReasonCodesOfTheProfile(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		connects := []byte{0x80, 0x81, 0x83, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x8c, 0x95, 0x97, 0x9c, 0x9d, 0x9f}
		for _, code := range connects {
			h.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: code, ServerReference: "other.example.test"})
			ack := dialPlain(t, h, 5).connect(nextConnect("dev-1", nextwire.ID{1}))
			require.Equal(t, code, ack.ReasonCode)
			require.Equal(t, "other.example.test", ack.Properties.ServerReference)
		}
		for _, code := range []byte{0x00, 0x01, 0x80, 0x83, 0x87, 0x8f, 0x91, 0x97, 0x9e, 0xa1, 0xa2} {
			d, _ := dialNext(t, h, 1, nil)
			h.Inject(fault.Fault{Kind: fault.RefuseSubscribe, Code: code})
			ack := d.subscribe(packets.Subscription{Filter: "ih/dev-1/dev/#", Qos: 1})
			if code == 0 {
				code = 0x80 // the default
			}
			require.Equal(t, []byte{code}, ack.ReasonCodes)
		}
		d := loginNext(t, h, 1)
		for _, code := range []byte{0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99} {
			h.Inject(fault.Fault{Kind: fault.RefusePublish, Code: code})
			require.Equal(t, code, d.publish(2, "ih/dev-1/srv/telemetry", "x"))
		}
		require.Empty(t, h.Messages())
		h.Inject(fault.Fault{Kind: fault.RefusePublish, Code: 0x97})
		require.Equal(t, byte(0x97), d.publish(2, "ih/dev-1/srv/methods", "x"))
		for _, code := range []byte{0x87, 0x89, 0x8b, 0x8d, 0x8e, 0x93, 0x96, 0x98, 0x9c, 0x9d, 0x9f, 0xa0} {
			d := loginNext(t, h, 1)
			h.Inject(fault.Fault{Kind: fault.DisconnectOnPublish, Code: code, ServerReference: "other.example.test"})
			d.send(message(3, "ih/dev-1/srv/telemetry", "x"))
			end := d.disconnected()
			require.Equal(t, code, end.ReasonCode)
			require.Equal(t, "other.example.test", end.Properties.ServerReference)
		}
	})
}

// Limits are announced and enforced.
func TestLimitsOfTheProfile(t *testing.T) {
	o := testbroker.MQTTv5Options{KeepAlive: 20 * time.Second, ReceiveMaximum: 1, MaximumPacketSize: 1000}
	inNextBubble(t, o, func(t *testing.T, h *testbroker.Hub) {
		d, ack := dialNext(t, h, 1, nil)
		require.Equal(t, uint16(20), ack.Properties.ServerKeepAlive)
		require.Equal(t, uint16(1), ack.Properties.ReceiveMaximum)
		require.Equal(t, uint32(1000), ack.Properties.MaximumPacketSize)
		time.Sleep(30 * time.Second)
		require.Equal(t, byte(0x8d), d.disconnected().ReasonCode)

		d, _ = dialNext(t, h, 1, nil)
		d.send(message(3, "ih/dev-1/srv/telemetry", string(make([]byte, 1000))))
		require.Equal(t, byte(0x95), d.disconnected().ReasonCode)

		d, _ = dialNext(t, h, 1, nil)
		h.Inject(fault.Fault{Kind: fault.SwallowPuback})
		d.send(message(3, "ih/dev-1/srv/telemetry", "x"))
		d.send(message(4, "ih/dev-1/srv/telemetry", "x"))
		require.Equal(t, byte(0x93), d.disconnected().ReasonCode)

		d, _ = dialNext(t, h, 1, nil)
		pk := message(3, "ih/dev-1/srv/telemetry", "x")
		pk.FixedHeader.Retain = true
		d.send(pk)
		require.Equal(t, byte(0x9a), d.disconnected().ReasonCode)
		synctest.Wait()
	})
}

// What the profile lacks is refused by name.
func TestWhatTheProfileLacks(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		require.ErrorContains(t, h.SendC2D("dev-1", hubdata.C2D{}), "no cloud-to-device messages")
		_, err := h.AddModule("dev-1", "m")
		require.ErrorContains(t, err, "no modules")
	})
}

// Drops at random, each with one of the codes of a DISCONNECT, repeat with the seed. From its drop
// until its next birth a device is told nothing.
func TestRandomDropsOfTheProfileRepeatWithTheSeed(t *testing.T) {
	codes := []byte{0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8b, 0x8c, 0x8d, 0x8e, 0x8f, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97,
		0x98, 0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9e, 0x9f, 0xa0, 0xa1, 0xa2}
	run := func(seed uint64) (heard []byte) {
		o := &testbroker.Options{Seed: seed, MQTTv5: &testbroker.MQTTv5Options{}}
		hubtest.InBubble(t, o, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
			fired := map[byte]*testbroker.Injected{}
			for _, code := range codes {
				fired[code] = h.Inject(fault.Fault{Kind: fault.DisconnectOnPublish, Code: code, Times: -1, Probability: .03})
			}
			require.Zero(t, h.CloseConnections("dev-1")+h.Drop("dev-1"), "nobody is connected")
			d := loginNext(t, h, 1)
			for range 500 {
				d.send(message(3, "ih/dev-1/srv/telemetry", "x"))
				pk, err := d.read()
				require.NoError(t, err)
				if pk.FixedHeader.Type == packets.Puback {
					continue
				}
				require.Equal(t, packets.Disconnect, pk.FixedHeader.Type)
				require.Equal(t, io.EOF, d.ended())
				heard = append(heard, pk.ReasonCode)
				d, _ = dialNext(t, h, 1, nil)
				d.listen()
				version := hubtest.PatchDesired(t, h, "dev-1", `{"a":1}`)
				d.ping() // and no patch
				require.EqualValues(t, version, d.born(nextwire.Birth{}).DesiredVersion)
			}
			for code, in := range fired {
				require.Positive(t, in.Fired(), "%#x", code)
				require.Equal(t, bytes.Count(heard, []byte{code}), in.Fired(), "%#x", code)
			}
		})
		return heard
	}
	require.Equal(t, run(1), run(1))
	require.NotEqual(t, run(1), run(2))
}
