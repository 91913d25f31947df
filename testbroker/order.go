package testbroker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FaultMessages says what the hub does with a message by which a device asks for a fault: one with the application
// property "AzIoTHub_FaultOperationType" of a type that is known, in any letter case.
//
// "KillTcp" cuts the connection, and with a duration every new one until that has passed. "ShutDownMqtt" ends the
// connection in order. "InvokeThrottling", "InvokeMaxMessageQuota" and "InvokeAuthError" end it in order and refuse new
// ones, with CONNACK 3, 3 and 5, for the duration. The types that are about AMQP do nothing. The other properties are
// "AzIoTHub_FaultOperationCloseReason", which is put into the cause, "AzIoTHub_FaultOperationDelayInSecs" and
// "AzIoTHub_FaultOperationDurationInSecs". Such a message is no telemetry: it is not in the log, and faults declared
// with [Hub.Inject] pass it by. See [Hub.FaultMessages].
type FaultMessages uint8

const (
	// ObeyFaultMessages acknowledges the message at once and does what it asks. A client that sends at least once
	// would otherwise ask again after each reconnect.
	ObeyFaultMessages FaultMessages = iota
	// ObeyFaultMessagesUnacked does what the message asks and never acknowledges it, as the service may.
	ObeyFaultMessagesUnacked
	// StoreFaultMessages takes it for telemetry.
	StoreFaultMessages
)

// FaultMessage is a fault that a device asked for by a message.
type FaultMessage struct {
	// DeviceID and ModuleID name the device that asked, which is also the one that it happens to.
	DeviceID, ModuleID string
	// Type is the type in the service's spelling, and Reason the text that goes with it.
	Type, Reason string
	// Delay and Duration are whole seconds. What is no number counts as zero.
	Delay, Duration time.Duration
	// Received is when the message came, by the hub's clock.
	Received time.Time
	// Happened says that it has ended a connection, or began to refuse them. It stays false for types about AMQP.
	Happened bool
	// Refused is how many connects were refused or cut because of it.
	Refused int
}

// orderKind is what a type does over MQTT.
type orderKind struct {
	name    string
	mqtt    bool // it does something
	cut     bool // by RST
	refuses bool // for the duration
	code    byte // the CONNACK with which it refuses
}

var orderKinds = []orderKind{
	{name: "KillTcp", mqtt: true, cut: true, refuses: true},
	{name: "ShutDownMqtt", mqtt: true},
	{name: "InvokeThrottling", mqtt: true, refuses: true, code: refusedUnavailable},
	{name: "InvokeMaxMessageQuota", mqtt: true, refuses: true, code: refusedUnavailable},
	{name: "InvokeAuthError", mqtt: true, refuses: true, code: refusedAuthority},
	{name: "KillAmqpConnection"}, {name: "KillAmqpSession"}, {name: "KillAmqpCBSLinkReq"}, {name: "KillAmqpCBSLinkResp"},
	{name: "KillAmqpD2CLink"}, {name: "KillAmqpC2DLink"}, {name: "KillAmqpTwinLinkReq"}, {name: "KillAmqpTwinLinkResp"},
	{name: "KillAmqpMethodReqLink"}, {name: "KillAmqpMethodRespLink"}, {name: "ShutDownAmqp"},
}

// orderError is the cause of what happens because a device asked for it.
type orderError struct{ kind, reason string }

// Error names the type and the reason.
func (e orderError) Error() string {
	return strings.TrimSuffix("asked for by the device: "+e.kind+": "+e.reason, ": ")
}

// A standingOrder is one that refuses connects. Guarded by Hub.mu.
type standingOrder struct {
	orderKind
	until  time.Time
	record *FaultMessage
}

const maxOrderSeconds = 1 << 31

// readOrder reads a message that asks for a fault; false when it does not.
func readOrder(m Message) (orderKind, FaultMessage, bool) {
	text, ok := m.Property("AzIoTHub_FaultOperationType")
	if !ok {
		return orderKind{}, FaultMessage{}, false
	}
	i := slices.IndexFunc(orderKinds, func(k orderKind) bool { return strings.EqualFold(k.name, text) })
	if i < 0 {
		return orderKind{}, FaultMessage{}, false
	}
	seconds := func(name string) time.Duration {
		value, _ := m.Property(name)
		n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		if err != nil {
			return 0
		}
		return time.Duration(min(n, maxOrderSeconds)) * time.Second
	}
	f := FaultMessage{DeviceID: m.DeviceID, ModuleID: m.ModuleID, Type: orderKinds[i].name}
	f.Reason, _ = m.Property("AzIoTHub_FaultOperationCloseReason")
	f.Delay = seconds("AzIoTHub_FaultOperationDelayInSecs")
	f.Duration = seconds("AzIoTHub_FaultOperationDurationInSecs")
	return orderKinds[i], f, true
}

// order takes a message that asks for a fault and has the fault happen in its time; false when it is none.
func (h *Hub) order(c *conn, m Message) bool {
	if h.obedient == StoreFaultMessages {
		return false
	}
	kind, f, ok := readOrder(m)
	if !ok {
		return false
	}
	f.Received = h.now()
	h.mu.Lock()
	h.orders = append(h.orders, &f)
	h.mu.Unlock()
	if m.QoS > 0 && (h.obedient == ObeyFaultMessages || !kind.mqtt) {
		c.acknowledge(m.PacketID, time.Time{})
	}
	h.changed.wake()
	switch {
	case !kind.mqtt:
	case f.Delay == 0:
		h.obey(kind, &f)
	default:
		due := time.NewTimer(f.Delay)
		h.wg.Go(func() {
			defer due.Stop()
			select {
			case <-due.C:
				h.obey(kind, &f)
			case <-h.done:
			}
		})
	}
	return true
}

// obey does what a device asked for.
func (h *Hub) obey(kind orderKind, f *FaultMessage) {
	id := identity{f.DeviceID, f.ModuleID}
	h.mu.Lock()
	c := h.current[id]
	stands := kind.refuses && f.Duration > 0
	if stands {
		h.standing[id] = standingOrder{kind, time.Now().Add(f.Duration), f}
	}
	f.Happened = c != nil || stands
	happened := f.Happened
	h.mu.Unlock()
	cause := orderError{f.Type, f.Reason}
	if happened {
		h.event(Event{Kind: FaultObeyed, DeviceID: id.device, ModuleID: id.module, Err: cause}, c)
	}
	switch {
	case c == nil:
	case kind.cut:
		c.cutFor(cause)
	default:
		c.farewell(cause)
	}
	h.changed.wake()
}

// ordered refuses a CONNECT because its device asked for that. An error ends the connection.
func (h *Hub) ordered(c *conn, id identity) error {
	h.mu.Lock()
	o, ok := h.standing[id]
	if ok && !o.until.After(time.Now()) {
		delete(h.standing, id)
		ok = false
	}
	if ok {
		o.record.Refused++
	}
	h.mu.Unlock()
	if !ok {
		return nil
	}
	cause := orderError{o.name, o.record.Reason}
	if o.cut {
		c.cutFor(cause)
		return cause
	}
	return h.refuse(c, o.code, cause)
}

// FaultMessages returns the faults that devices have asked for by message, in order of arrival.
func (h *Hub) FaultMessages() []FaultMessage {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]FaultMessage, len(h.orders))
	for i, f := range h.orders {
		all[i] = *f
	}
	return all
}

// String names the constant.
func (f FaultMessages) String() string {
	names := [...]string{"ObeyFaultMessages", "ObeyFaultMessagesUnacked", "StoreFaultMessages"}
	if int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("FaultMessages(%d)", uint8(f))
}
