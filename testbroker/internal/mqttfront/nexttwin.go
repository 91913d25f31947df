package mqttfront

import (
	"cmp"
	"encoding/hex"
	"errors"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// twin handles a request about the twin. Decision: before the birth the hub answers none.
func (n next) twin(c *client, typ string, id nextwire.ID, k *mqtt.PublishPacket, ack func() bool) error {
	if !c.next.born.Load() {
		return errors.New("request about the twin before the birth")
	}
	r := hubdata.TwinRequest{DeviceID: c.ID.Device, RequestID: hex.EncodeToString(id[:]), Protocol: hubdata.MQTT}
	a := nextAsker{c: c, id: id, ack: ack}
	switch typ {
	case nextwire.TypeTwinGet:
		a.get = new(nextwire.TwinGet)
		if err := nextwire.Decode(k.Payload, a.get); err != nil {
			return err
		}
		if a.get.Sections < 0 || a.get.Sections > nextwire.SectionBoth {
			return errors.New("get of an unknown section")
		}
		r.Operation = hubdata.TwinGet
	case nextwire.TypeReportedPatch:
		var p nextwire.ReportedPatch
		if err := nextwire.Decode(k.Payload, &p); err != nil {
			return err
		}
		r.Operation, r.Body, r.Base = hubdata.TwinPatch, p.Payload, signed(p.IfMatch)
		// Decision: 0 matches any version, as the service's own tests expect and its schema denies.
		if r.Base == 0 && c.Fault(fault.StrictIfMatch) != nil {
			r.Base = -1
		}
	default:
		return errType(typ)
	}
	n.hub.AskTwin(a, r, nil)
	return nil
}

// A nextAsker is a client that has sent a request about its twin.
type nextAsker struct {
	c   *client
	id  nextwire.ID
	ack func() bool
	get *nextwire.TwinGet // nil for a patch
}

func (a nextAsker) Taken() bool { return a.ack() }

func (a nextAsker) Client() *hub.Conn { return a.c.Conn }

func (a nextAsker) Listen(bool) {} // a birth does

// Answer answers a request. A get that failed has no answer: the protocol has none.
func (a nextAsker) Answer(ans hub.TwinAnswer, wrong bool) bool {
	t, err := a.c.Hub.Twin(a.c.ID.String())
	if err != nil { // removed meanwhile
		return false
	}
	d := dispatch{feature: nextwire.FeatureTwin, id: a.id}
	if a.get != nil {
		if ans.Status != 200 {
			return false
		}
		d.typ, d.message = nextwire.TypeGetResponse, getResponse(a.get, t)
	} else {
		d.typ, d.message = nextwire.TypePatchResponse, patchResponse(ans, t)
	}
	if ans.Garbled {
		d.body = ans.Body
	}
	if wrong {
		d.id[0] ^= 0xff
	}
	return a.c.dispatch(d)
}

// getResponse returns the versions of a twin, and each section that was requested and is not the
// filtered one. Decision: a get without sections has an answer of versions.
func getResponse(get *nextwire.TwinGet, t hubdata.Twin) *nextwire.GetResponse {
	r := &nextwire.GetResponse{DesiredVersion: uint64(t.DesiredVersion), ReportedVersion: uint64(t.ReportedVersion)}
	if get.Sections&nextwire.SectionDesired != 0 && get.IfNotMatchDesired != r.DesiredVersion {
		r.Desired = t.Desired
	}
	if get.Sections&nextwire.SectionReported != 0 && get.IfNotMatchReported != r.ReportedVersion {
		r.Reported = t.Reported
	}
	return r
}

// results has the outcome of a patch for the status that other protocols have.
var results = map[int]nextwire.PatchResult{
	204: nextwire.PatchOK, 400: nextwire.PatchPayloadInvalid, 412: nextwire.PatchVersionMismatch,
	413: nextwire.PatchPayloadTooLarge,
}

// patchResponse returns the answer to a patch: with the new version, or the one that stays.
func patchResponse(ans hub.TwinAnswer, t hubdata.Twin) *nextwire.PatchResponse {
	r := &nextwire.PatchResponse{Result: results[ans.Status], Version: uint64(cmp.Or(ans.Version, t.ReportedVersion))}
	switch {
	case ans.TooLarge:
		r.Result = nextwire.PatchPayloadTooLarge
	case r.Result == 0:
		r.Result = nextwire.PatchInternalError
	}
	return r
}
