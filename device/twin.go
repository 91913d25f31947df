package device

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/transport"
)

// Twin is the document that the hub keeps about a device: the properties desired by a back end and
// those reported by the device.
type Twin struct {
	// Desired and Reported are JSON objects as the hub sent them, with their "$version".
	Desired, Reported []byte
	// DesiredVersion and ReportedVersion are those versions; 0 when the hub gave none.
	DesiredVersion, ReportedVersion int64
}

// GetTwin reads the twin. It waits for a connection if there is none. The message policy decides
// about retries of a request that the service refuses for now. It fails with
//
//   - Closed, when the client is not open or is closed meanwhile;
//   - the failure that made the client Disconnected, meanwhile or before;
//   - Cancelled, when ctx ended first, or Timeout, when OperationTimeout did;
//   - Unsupported over a transport without twins, Protocol for an answer that is not a twin
//     document, or the service's refusal.
//
// Up to 16 twin calls, of this and the following methods, are pending at a time; further ones wait
// for their turn.
func (c *Client) GetTwin(ctx context.Context) (*Twin, error) {
	r, err := c.callTwin(ctx, transport.Request{Op: transport.OpTwinGet})
	if err != nil {
		return nil, err
	}
	return parseTwin(r.Body)
}

// PatchReported changes the reported properties of the twin. patch is a JSON object that the hub
// merges into them (RFC 7396: a null member is removed). It returns the version of the reported
// properties after the change. Patches are applied one at a time, in the order of the calls. A
// patch whose outcome was lost with its connection is sent again.
//
// Errors are those of GetTwin, and Invalid for a patch that is not a JSON object.
// transport.ErrOutcomeUnknown in the chain means that the hub may have applied the patch. The hub
// checks the size of the twin and answers with Invalid or TooLarge. The limit is 32 KiB of reported
// properties after the patch, counting names, strings, 8 bytes for a number and 4 for a boolean
// ("Understand and use device twins in IoT Hub"). A patch larger than any message of the transport
// fails with TooLarge as well.
func (c *Client) PatchReported(ctx context.Context, patch []byte) (version int64, err error) {
	return c.patchReported(ctx, patch, 0)
}

// PatchReportedIf is PatchReported on condition that the reported properties have the version
// expected, from 1 on; otherwise the hub answers with Conflict. A patch with unknown outcome is not
// repeated, but fails with transport.ErrOutcomeUnknown in its error's chain.
func (c *Client) PatchReportedIf(ctx context.Context, patch []byte, expected int64) (version int64, err error) {
	if expected < 1 {
		return 0, invalidTwin("the expected version is below 1; versions of reported properties start at 1")
	}
	return c.patchReported(ctx, patch, expected)
}

func (c *Client) patchReported(ctx context.Context, patch []byte, expected int64) (int64, error) {
	if !jsonscan.IsObject(patch) {
		return 0, invalidTwin("the patch is not a JSON object")
	}
	r, err := c.callTwin(ctx, transport.Request{Op: transport.OpTwinPatch, Version: expected, Body: append([]byte(nil),
		patch...)})
	return r.Version, err
}

func invalidTwin(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpTwinPatch, Err: errors.New(text)}
}

// parseTwin parses a twin document.
func parseTwin(doc []byte) (*Twin, error) {
	desired, okD := jsonscan.Member(doc, "desired")
	reported, okR := jsonscan.Member(doc, "reported")
	if !okD || !okR || !jsonscan.IsObject(desired) || !jsonscan.IsObject(reported) {
		return nil, &transport.Error{Kind: transport.Protocol, Op: transport.OpTwinGet,
			Err: errors.New("the hub's answer is not a twin document")}
	}
	return &Twin{desired, reported, versionOf(desired), versionOf(reported)}, nil
}

// versionOf returns the "$version" of properties, 0 if they have none.
func versionOf(properties []byte) int64 {
	text, _ := jsonscan.Member(properties, "$version")
	version, _ := jsonscan.Int(text)
	return version
}

// callTwin sends r and waits for the answer.
func (c *Client) callTwin(ctx context.Context, r transport.Request) (transport.Reply, error) {
	if why := c.lacks(transport.FeatureTwin, r.Op); why != nil {
		return transport.Reply{}, why
	}
	t := c.twinFeature()
	if why := t.closed(r.Op); why != nil {
		return transport.Reply{}, why
	}
	var late <-chan struct{}
	if limit := c.set.OperationTimeout; limit > 0 {
		a := newAlarm(limit)
		defer a.stop()
		late = a.fired
	}
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	case <-ctx.Done():
		return transport.Reply{}, gaveUp(ctx, r.Op, errOperationTimeout, errTwinBusy)
	case <-late:
		return transport.Reply{}, gaveUp(ctx, r.Op, errOperationTimeout, errTwinBusy)
	}
	answer := make(chan transport.Reply, 1)
	call, err := t.add(r, func(r transport.Reply) { answer <- r })
	if err != nil {
		return transport.Reply{}, err
	}
	select {
	case reply := <-answer:
		return reply, reply.Err
	case <-ctx.Done():
	case <-late:
	}
	var state error
	switch t.withdraw(call) {
	case resolved:
		reply := <-answer
		return reply, reply.Err
	case unknown:
		state = transport.ErrOutcomeUnknown
	case withdrawn:
		state = c.trouble()
	}
	return transport.Reply{}, gaveUp(ctx, r.Op, errOperationTimeout, state)
}

var (
	errTwinBusy         = errors.New("16 calls about the twin are pending")
	errOperationTimeout = errors.New("no answer within OperationTimeout")
)

// twinFeature returns the client's twin, and adds it to the client at the first call.
func (c *Client) twinFeature() *twin {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.twin == nil {
		c.twin = &twin{poke: c.poke, set: &c.set, slots: make(chan struct{}, twinSlots), id: firstID}
		c.addFeatureLocked(c.twin.feature())
	}
	return c.twin
}
