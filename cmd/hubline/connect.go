package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/doctor"
	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/policies"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// connection has the flags of commands that connect.
type connection struct {
	tool   *tool
	target target.Flags
	policy string
	wait   time.Duration
	quiet  bool
	broker bool   // the service is a broker; set by prepare
	wire   *meter // counts the bytes of the connections; nil: nobody asks
}

func (t *tool) connection(c *cobra.Command) *connection {
	x := &connection{tool: t}
	flags := c.Flags()
	x.target.Register(flags)
	flags.StringVar(&x.policy, "policy", "azure", "retry policy, `NAME` or NAME:PARAMETER=VALUE,...; see "+
		"hubline help policies")
	flags.DurationVar(&x.wait, "connect-timeout", 30*time.Second, "end without a connection after this time; 0: never")
	flags.BoolVar(&x.quiet, "quiet", false, "print no line about the connection")
	return x
}

// find returns the target, which may have to register.
func (x *connection) find() (*target.Target, error) {
	if x.wait < 0 {
		return nil, usage("-connect-timeout: %v is negative; give a time such as 30s, or 0 for none", x.wait)
	}
	to, err := x.target.Resolve(x.tool.world)
	if err != nil {
		return nil, err
	}
	if x.tool.adapt != nil {
		x.tool.adapt(to)
	}
	return to, nil
}

// resolve returns the target, registered if it has to.
func (x *connection) resolve(ctx context.Context) (*target.Target, error) {
	to, err := x.find()
	if err != nil || to.Identity == nil {
		return to, err
	}
	ctx, cancel := limited(ctx, x.wait)
	defer cancel()
	assignment, err := to.Register(ctx, &provisioning.Options{})
	if err != nil {
		return nil, err
	}
	x.say("registered: %s at %s%s", assignment.DeviceID, assignment.Hub, profileOf(assignment))
	return to, nil
}

// profileOf returns what to say of the hub's connection profile; nothing for a classic one.
func profileOf(a *provisioning.Assignment) string {
	if !a.MQTTv5() {
		return ""
	}
	return ", a hub of the profile " + a.ConnectionProfile
}

// limited returns a context with a time limit; 0 is none.
func limited(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

func (x *connection) say(format string, args ...any) {
	if !x.quiet {
		fmt.Fprintf(x.tool.log, format+"\n", args...)
	}
}

// session is a client with two contexts: ctx ends with the command's or when the client gives up,
// alive when the client gives up.
type session struct {
	*device.Client
	ctx, alive context.Context
	giveUp     context.CancelCauseFunc
	// hub: the service is a hub. twin: it is one, over a transport with twin and methods. messages: it
	// sends messages to devices.
	hub, twin, messages bool
}

// prepare makes a client that reports its connection.
func (x *connection) prepare(ctx context.Context, o *device.Options) (*session, error) {
	if _, err := x.retries(); err != nil {
		return nil, err // before a registration
	}
	to, err := x.resolve(ctx)
	if err != nil {
		return nil, err
	}
	return x.session(ctx, to, o)
}

// retries returns the policy of -policy.
func (x *connection) retries() (retrypolicy.Policy, error) {
	policy, err := policies.Parse(x.policy)
	if err != nil {
		return nil, usage("-policy: %v", err)
	}
	return policy, nil
}

// session makes the client of a target.
func (x *connection) session(ctx context.Context, to *target.Target, o *device.Options) (*session, error) {
	policy, err := x.retries()
	if err != nil {
		return nil, err
	}
	x.broker = to.URL != nil
	if x.wire != nil {
		to.Network.Dial = x.wire.dialer(to.Network.Dial)
	}
	t, creds, err := to.Transport()
	if err != nil {
		return nil, err
	}
	if advice := to.Advice(creds.Host); advice != "" {
		x.say("%s", advice)
	}
	s := &session{hub: to.URL == nil, twin: to.HasTwin(), messages: to.HasMessages()}
	s.alive, s.giveUp = context.WithCancelCause(context.Background())
	var cancel context.CancelCauseFunc
	s.ctx, cancel = context.WithCancelCause(ctx)
	context.AfterFunc(s.alive, func() { cancel(context.Cause(s.alive)) })
	// A hub may lift a refusal in some minutes, for which no command waits.
	o.RetryPolicy = retrypolicy.ByKind{Default: policy, Rules: []retrypolicy.Rule{
		{Kinds: retrypolicy.Kinds(transport.Unauthorized), Policy: retrypolicy.NoRetry{}}}}
	o.OnStatus = func(status device.Status) {
		x.report(status)
		if status.State == device.StateDisconnected && status.Err != nil {
			s.giveUp(status.Err)
		}
	}
	if s.Client, err = device.New(creds, t, o); err != nil {
		return nil, err
	}
	return s, nil
}

// report prints what a person has to know of a status.
func (x *connection) report(s device.Status) {
	switch s.Reason {
	case device.ReasonConnectionLost, device.ReasonAttemptFailed, device.ReasonPaused, device.ReasonHeld:
		x.say("%v, next attempt in %v: %v", s.Reason, s.Delay.Round(time.Millisecond), s.Err)
		x.hint(s)
	case device.ReasonConnectionOK:
		x.say("connected")
	case device.ReasonClockJumped, device.ReasonPlanned, device.ReasonTokenRenewal:
		x.say("%v", s.Reason)
	default: // the beginning of attempts, and ends, which the command reports
	}
}

func (x *connection) hint(s device.Status) {
	if text, ok := doctor.Advice(s.Err); ok && s.Retry <= 1 {
		x.say("  %s", text)
	} else if text := s.Hint(); s.Suspect != device.SuspectNone {
		guess := s.Suspect == device.SuspectQuotaUsedUp || s.Suspect == device.SuspectBadMessage
		if x.broker && guess && strings.HasPrefix(text, s.Suspect.String()) {
			text = "the broker may not allow this device the topic, or not take the message, or a limit is reached"
		}
		x.say("  %s", text)
	} else if text != "" && s.Retry <= 1 && !passing(s.Err) {
		x.say("  %s", text)
	}
}

// open connects, within the time of -connect-timeout.
func (x *connection) open(ctx context.Context, s *session) error {
	limit, cancel := limited(ctx, x.wait)
	defer cancel()
	err := s.Open(limit)
	if err == nil || limit.Err() == nil {
		return err
	}
	what, status := fmt.Sprintf("no connection within %v", x.wait), exitNetwork
	if ctx.Err() != nil {
		what, status = "interrupted before there was a connection", exitFailed
	}
	if last := s.Stats().LastError; last != nil {
		return fmt.Errorf("%s: %w", what, last)
	}
	return &exitError{status, errors.New(what + ", and no answer from the service yet" + askDoctor)}
}

// cause returns the error with which the client gave up; nil if it did not.
func (s *session) cause() error { return context.Cause(s.alive) }
