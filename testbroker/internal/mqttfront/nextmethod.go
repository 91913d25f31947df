package mqttfront

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

func (next) methodTarget(c *client, _ string) hub.MethodTarget {
	if _, ok := c.grantedLocked(nextwire.Down(c.ID.Device, nextwire.FeatureMethods)); ok && c.next.born.Load() {
		return nextTarget{c}
	}
	return nil
}

// A nextTarget is a client that is asked whether it takes a method.
type nextTarget struct{ c *client }

func (t nextTarget) Client() *hub.Conn { return t.c.Conn }

func (nextTarget) Protocol() hubdata.Protocol { return hubdata.MQTT }

func (nextTarget) Asks() bool { return true }

// NewID returns an id as text: a UUID. With a seed, it is derived from it.
func (t nextTarget) NewID(n uint64) string {
	var random nextwire.ID
	if seed := t.c.Hub.Seed; seed == 0 {
		rand.Read(random[:]) // never fails
	} else {
		binary.BigEndian.PutUint64(random[:], seed)
		binary.BigEndian.PutUint64(random[8:], n)
	}
	id := nextwire.NewID(random)
	return hex.EncodeToString(id[:])
}

func (nextTarget) OtherID(rid string) string {
	id := methodID(rid)
	id[0] ^= 0xff
	return hex.EncodeToString(id[:])
}

// methodID returns an id of NewID as bytes.
func methodID(rid string) nextwire.ID {
	b, _ := hex.DecodeString(rid)
	id, _ := nextwire.ParseID(b)
	return id
}

// Request sends the probe of a call.
func (t nextTarget) Request(r hub.MethodRequest) bool {
	is := func(f *fault.Fault) bool { return f.Method == "" || f.Method == r.Name }
	if t.c.Hub.Strike(fault.ExecWithoutProbe, t.c.ID, t.c.Conn, is) != nil {
		other := methodID(t.OtherID(r.ID))
		return t.c.exec(r, other[:])
	}
	return t.c.dispatch(dispatch{
		feature: nextwire.FeatureMethods, typ: nextwire.TypeProbe, id: methodID(r.ID), expiry: r.ConnectTimeout,
		message: &nextwire.Probe{
			Method: r.Name, ResponseTimeout: uint32(min(int64(hub.Seconds(r.ResponseTimeout)), math.MaxUint32)),
		},
	})
}

func (c *client) exec(r hub.MethodRequest, ready []byte) bool {
	now := c.Hub.Now()
	return c.dispatch(dispatch{
		feature: nextwire.FeatureMethods, typ: nextwire.TypeExec, id: methodID(r.ID), expiry: r.ResponseTimeout,
		message: &nextwire.Exec{
			ReadyID: ready, Params: r.Payload,
			Start: &nextwire.Timestamp{Seconds: now.Unix(), Nanoseconds: int32(now.Nanosecond())},
		},
	})
}

// declines has what a caller gets when a device rejects its call.
var declines = map[nextwire.RejectReason]hub.Decline{
	nextwire.RejectMethodNotFound: hub.DeclinedUnknown, nextwire.RejectInsufficientTime: hub.DeclinedTime,
	nextwire.RejectDeviceBusy: hub.DeclinedBusy,
}

// method handles an answer of a device. Those to calls that have ended are ignored.
func (n next) method(c *client, typ string, id nextwire.ID, k *mqtt.PublishPacket, ack func() bool) error {
	rid := hex.EncodeToString(id[:])
	switch typ {
	case nextwire.TypeProbeAck:
		var p nextwire.ProbeAck
		if err := nextwire.Decode(k.Payload, &p); err != nil {
			return err
		}
		switch {
		case !ack():
		case p.Rejected != nil:
			why, ok := declines[p.Rejected.Reason]
			if !ok {
				why = hub.DeclinedUnknown
			}
			n.hub.Declined(c.ID, rid, why, fmt.Sprintf("rejected with reason %d", p.Rejected.Reason), false)
		case p.Ready != nil && len(p.Ready.ID) == len(id):
			if r, ok := n.hub.Agreed(c.ID, rid); ok {
				c.exec(r, p.Ready.ID)
			}
		}
		return nil
	case nextwire.TypeAbandon:
		var a nextwire.Abandon
		if err := nextwire.Decode(k.Payload, &a); err != nil {
			return err
		}
		if ack() {
			n.hub.Declined(c.ID, rid, hub.DeclinedTime, fmt.Sprintf("abandoned with reason %d", a.Reason), true)
		}
		return nil
	case nextwire.TypeResult:
		var r nextwire.Result
		if err := nextwire.Decode(k.Payload, &r); err != nil {
			return err
		}
		a := hubdata.MethodAnswer{
			DeviceID: c.ID.Device, RequestID: rid, Protocol: hubdata.MQTT,
			MethodResult: hubdata.MethodResult{Status: int(r.Status), Payload: r.Body},
		}
		if !n.hub.CutOnAnswer(c.Conn, a) && ack() {
			n.hub.Answered(c.Conn, a)
		}
		return nil
	}
	return errType(typ)
}

// seconds returns a duration as a message expiry interval: whole seconds, at least one.
func seconds(d time.Duration) uint32 {
	return uint32(min(max(int64(hub.Seconds(d)), 1), math.MaxUint32))
}
