package hub

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

const (
	inputQueue = 100_000
	inputTTL   = 2 * time.Hour
)

// inputDefaults is c2dDefaults for the queues of inputs.
func inputDefaults(o hubdata.C2DOptions) hubdata.C2DOptions {
	o.Queue = cmp.Or(max(o.Queue, 0), inputQueue)
	o.TTL = cmp.Or(max(o.TTL, 0), inputTTL)
	o.MaxDeliveries = cmp.Or(max(o.MaxDeliveries, 0), math.MaxInt)
	return c2dDefaults(o)
}

// queueEvents are the kinds of the events of each box.
var queueEvents = [...]event.Kind{Commands: event.C2DChanged, Inputs: event.InputChanged}

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
