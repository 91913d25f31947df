package nexthub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// taker is a sink that takes everything.
type taker struct{ deliveries, replies int }

func (*taker) Done(uint16, error) {}

func (s *taker) Reply(uint32, transport.Reply) { s.replies++ }

func (s *taker) Deliver(*transport.Delivery) bool { s.deliveries++; return true }

// FuzzMessages has a session take a message of each feature and type, several times: nothing
// panics, each message has few consequences, and what waits to be sent stays bounded.
func FuzzMessages(f *testing.F) {
	for typ, m := range map[string]nextwire.Message{
		nextwire.TypeTwinPush:     pushed(3),
		nextwire.TypeDesiredPatch: &nextwire.DesiredPatch{Version: 3, Payload: []byte("{}")},
		nextwire.TypeGetResponse:  &nextwire.GetResponse{DesiredVersion: 3, Desired: []byte("{}"), Reported: []byte("{}")},
		nextwire.TypePatchResponse: &nextwire.PatchResponse{Result: nextwire.PatchVersionMismatch,
			Version: 3},
		nextwire.TypeProbe: &nextwire.Probe{Method: "m", ResponseTimeout: 30},
		nextwire.TypeExec:  &nextwire.Exec{ReadyID: make([]byte, 16), Params: []byte("1")},
	} {
		for _, op := range []byte{opGet, opGetDesired, opPatchIf, opPatch + 1} {
			f.Add(typ, op, uint32(7), int64(30), nextwire.Append(nil, m))
		}
	}
	f.Fuzz(func(t *testing.T, typ string, op byte, id uint32, expires int64, body []byte) {
		var kept any
		creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "d"}
		d, _, err := (&Hub{}).Session(&dialect.Config{Creds: creds, Properties: true, Kept: &kept})
		require.NoError(t, err)
		s, sink := d.(*session), &taker{}
		s.twin.begin(&nextwire.BirthAck{DesiredVersion: 2, ReportedVersion: 1}, 1, true)
		s.Request(&transport.Request{ID: 7, Op: transport.OpTwinPatch, Body: []byte("{}")})
		request, _ := nextwire.ParseID(s.twin.message(typ, op, id, &nextwire.TwinGet{}).CorrelationID)
		for _, correlation := range []nextwire.ID{s.twin.nonce, request} {
			for _, feature := range []string{nextwire.FeatureTwin, nextwire.FeatureMethods, "other"} {
				for range maxOut + 1 {
					m := &transport.Message{Body: body, CorrelationID: string(correlation[:]), Properties: []transport.Property{
						{Name: nextwire.PropertyType, Value: typ}}}
					if expires != 0 {
						m.Expires = time.Now().Add(time.Duration(expires))
					}
					before := *sink
					s.Take(sink, []byte(nextwire.Down("d", feature)), &transport.Delivery{Msg: m})
					require.LessOrEqual(t, sink.deliveries-before.deliveries, 2)
					require.LessOrEqual(t, sink.replies-before.replies, 1)
					require.LessOrEqual(t, len(s.out), maxOut)
					require.LessOrEqual(t, len(s.methods.calls), maxCalls)
				}
			}
		}
	})
}
