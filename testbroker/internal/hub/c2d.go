package hub

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
)

const (
	maxTopic  = 1<<16 - 1
	c2dStates = hubdata.C2DRejected + 1
)

// ErrQueueFull is returned by [Hub.SendC2D] while the device's queue of C2D messages is full.
var ErrQueueFull = errors.New("testbroker: the device's queue of C2D messages is full")

// ErrTooLarge is the reason of a refused message whose body is too large.
var ErrTooLarge = errors.New("message too large")

// feedbackCodes are the feedback status codes of the final states.
var feedbackCodes = [c2dStates]string{hubdata.C2DCompleted: "Success", hubdata.C2DExpired: "Expired",
	hubdata.C2DDeadLettered: "DeliveryCountExceeded",
	hubdata.C2DPurged:       "Purged", hubdata.C2DRejected: "Rejected"}

// feedbackOf returns the status code that the sender receives for a final state; empty if none.
func feedbackOf(m hubdata.C2D, end hubdata.C2DState) string {
	if m.Ack == "full" || m.Ack == "positive" && end == hubdata.C2DCompleted || m.Ack == "negative" &&
		end != hubdata.C2DCompleted {
		return feedbackCodes[end]
	}
	return ""
}

func checkC2D(m hubdata.C2D, limit int) error {
	switch {
	case len(m.Body) > limit:
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, len(m.Body), limit)
	case !slices.Contains([]string{"", "none", "positive", "negative", "full"}, m.Ack):
		return fmt.Errorf("ack %q", m.Ack)
	case !Writable(m.Expiry):
		return fmt.Errorf("expiry in the year %d, 1 to 9999 are allowed", m.Expiry.UTC().Year())
	case !Writable(m.CreationTime):
		return fmt.Errorf("creation time in the year %d, 1 to 9999 are allowed", m.CreationTime.UTC().Year())
	}
	for _, p := range m.Properties {
		if p.Name == "" {
			return errors.New("property without a name")
		}
	}
	return telemetry.CheckID(m.MessageID)
}

// Writable reports whether the year of a time has four digits, as texts and JSON need.
func Writable(t time.Time) bool {
	for _, year := range [...]int{t.Year(), t.UTC().Year()} {
		if year < 1 || year > 9999 {
			return false
		}
	}
	return true
}

// SendC2D queues a C2D message for a device.
func (h *Hub) SendC2D(id string, m hubdata.C2D) error {
	who := identity.SplitIdentity(id)
	if err := checkC2D(m, hubdata.MaxC2D); err != nil {
		return fmt.Errorf("testbroker: C2D message: %w", err)
	}
	if h.MQTTv5 {
		return h.lacks("cloud-to-device messages")
	}
	topic, err := h.topicOf(m, who)
	if err != nil {
		return err
	}
	q, err := h.Queue(who, Commands)
	if err != nil {
		return err
	}
	if in := h.Faults.Exhausted(who, h.Now()); in != nil {
		h.Happened(in, nil)
		return faults.ErrQuota
	}
	m.Body, m.Properties = slices.Clone(m.Body), slices.Clone(m.Properties)
	if err := q.add(m, "", topic); err != nil {
		return err
	}
	h.Faults.Spend(who, h.Now(), sizeOfC2D(m))
	h.Changed.Wake()
	h.Records.Saved()
	return nil
}

func (h *Hub) topicOf(m hubdata.C2D, id identity.Identity) (topic string, err error) {
	switch {
	case h.PlainTopic != nil:
		if topic, err = h.PlainTopic(m, id); err != nil {
			return "", err
		}
	case m.Topic != "" || m.ResponseTopic != "" || m.Retain:
		return "", errors.New("testbroker: C2D message with a topic, a response topic or RETAIN needs Options.Broker")
	default:
		topic = c2dTopic(m, id)
	}
	return topic, checkTopic(topic)
}

func checkTopic(topic string) error {
	if len(topic) > maxTopic {
		return fmt.Errorf("testbroker: message with a topic of %d bytes, at most %d are allowed", len(topic), maxTopic)
	}
	return nil
}

// sizeOfC2D counts as the service does for limits and quotas.
func sizeOfC2D(m hubdata.C2D) int {
	n := len(m.Body)
	for _, s := range [...]string{m.MessageID, m.CorrelationID, m.UserID, m.ContentType, m.ContentEncoding, m.To,
		m.Schema, m.InterfaceID, m.Component, m.ConnectionDeviceID, m.ConnectionModuleID, m.DiagnosticID,
		m.DiagnosticContext, document.TimeText(m.CreationTime)} {
		n += len(s)
	}
	for _, p := range m.Properties {
		n += len(p.Name) + len(p.Value)
	}
	return n
}

// AddressOf returns the property "to" of a message: as the sender has set it, or the address of the
// receiver of a C2D message with the given path.
func AddressOf(r *hubdata.C2DRecord, path string) string {
	if r.C2D.To != "" || r.Input != "" {
		return r.C2D.To
	}
	return "/" + identity.Identity{Device: r.DeviceID, Module: r.ModuleID}.Resource() + path
}

// SendInput queues a message for an input of a module, which is named "deviceID/moduleID".
func (h *Hub) SendInput(module, input string, m hubdata.C2D) error {
	id := identity.SplitIdentity(module)
	if err := checkInput(id, input, m); err != nil {
		return fmt.Errorf("testbroker: message to an input: %w", err)
	}
	if h.PlainTopic != nil {
		return errors.New("testbroker: a plain broker has no inputs of modules")
	}
	topic := inputTopic(m, id, input)
	if err := checkTopic(topic); err != nil {
		return err
	}
	q, err := h.Queue(id, Inputs)
	if err != nil {
		return err
	}
	m.Body, m.Properties = slices.Clone(m.Body), slices.Clone(m.Properties)
	if err := q.add(m, input, topic); err != nil {
		return err
	}
	h.Changed.Wake()
	h.Records.Saved()
	return nil
}

func checkInput(id identity.Identity, input string, m hubdata.C2D) error {
	if id.Module == "" {
		return fmt.Errorf("%q is no module, want deviceID/moduleID", id)
	}
	if err := CheckName("input", input); err != nil {
		return err
	}
	if m.Topic != "" || m.ResponseTopic != "" || m.Retain {
		return errors.New("a topic, a response topic and RETAIN need Options.Broker")
	}
	return checkC2D(m, hubdata.MaxMessage)
}

// CheckName checks the name of an input or output. It is part of topics unchanged.
func CheckName(what, name string) error {
	if name == "" || len(name) > identity.MaxID {
		return fmt.Errorf("%s name of %d characters, want 1 to %d", what, len(name), identity.MaxID)
	}
	for _, r := range name {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
		default:
			return fmt.Errorf("%s name %q: character %q is not allowed", what, name, r)
		}
	}
	return nil
}
