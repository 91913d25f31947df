package device_test

import (
	"context"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// without makes a fake whose sessions refuse subscriptions to any of features.
func without(features transport.Features) *fake {
	f := &fake{}
	f.lack(features)
	f.subscribe = func(int) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.wanted[len(f.wanted)-1]&f.lacks != 0 {
			return refused(transport.Unsupported)
		}
		return nil
	}
	return f
}

// lack makes sessions refuse subscriptions to any of features.
func (f *fake) lack(features transport.Features) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lacks = features
}

func handleAll(t *testing.T, c *device.Client) {
	require.NoError(t, c.HandleMessages(accept))
	require.NoError(t, c.HandleDesired(func(context.Context, device.Desired) {}))
	require.NoError(t, c.HandleMethod("a", ok))
}

func TestAFeatureThatOnlyThePeerKnowsToLackCostsNoConnection(t *testing.T) {
	for name, lacks := range map[string]transport.Features{
		"direct methods":           transport.FeatureMethods,
		"device twins":             transport.FeatureTwin,
		"cloud-to-device messages": transport.FeatureMessages,
		"cloud-to-device messages ": transport.FeatureMessages | transport.FeatureMethods | transport.FeatureDesired |
			transport.FeatureTwin,
	} {
		for _, late := range []bool{false, true} {
			run(t, name+map[bool]string{true: ", handlers on a live connection"}[late], func(t *testing.T) {
				f := without(lacks)
				c, w := client(t, f, nil)
				if late {
					open(t, c)
					handleAll(t, c)
				} else {
					handleAll(t, c)
					open(t, c)
				}
				time.Sleep(time.Second)
				s := c.Status()
				require.Equal(t, device.StateConnected, s.State)
				require.ErrorIs(t, s.Err, transport.Unsupported)
				require.ErrorContains(t, s.Err, "the peer has no "+strings.TrimSpace(name))
				require.NotEmpty(t, s.Hint())
				require.Contains(t, w.reasons(), device.ReasonConnectionOK)

				subscribed := f.subscriptions()
				require.NoError(t, c.Send(t.Context(), msg(1)))
				statuses := len(w.reasons())
				time.Sleep(29 * time.Minute)
				require.Len(t, f.subscriptions(), len(subscribed))
				time.Sleep(10 * time.Hour)
				require.Len(t, f.subscriptions(), len(subscribed)+20*bits.OnesCount(uint(lacks)), "one each half an hour")
				require.Len(t, f.dialTimes(), 1)
				require.Len(t, w.reasons(), statuses, "the refusal is reported once")
				if lacks&transport.FeatureMessages == 0 {
					require.True(t, f.last().deliver("1"))
				}
				if lacks&transport.FeatureTwin != 0 {
					_, err := c.GetTwin(t.Context())
					require.ErrorIs(t, err, transport.Unsupported)
				}
			})
		}
	}
}

// The next connection may lead to a peer that has it.
func TestAFeatureThatOnePeerLacksIsAskedForOnTheNextConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := without(transport.FeatureMethods)
		c, _ := client(t, f, nil)
		handleAll(t, c)
		open(t, c)
		require.Error(t, c.Status().Err)
		f.subscribe = nil
		f.lose(transport.Network, time.Minute)
		require.Equal(t, device.StateConnected, c.Status().State)
		require.NoError(t, c.Status().Err)
	})
}

// A session may learn later what the peer has: an HTTPS session with each poll.
func TestTheStatusFollowsAPeerThatTakesAFeatureBackAndGrantsItAgain(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, w := client(t, f, nil)
		require.NoError(t, c.HandleMessages(accept))
		open(t, c)
		time.Sleep(time.Second)
		for range 2 {
			before := len(w.reasons())
			f.last().subscribedAgain(refused(transport.Unsupported))
			f.last().subscribedAgain(refused(transport.Unsupported)) // says nothing new
			require.ErrorContains(t, c.Status().Err, "the peer has no cloud-to-device messages")
			f.last().subscribedAgain(nil)
			require.NoError(t, c.Status().Err)
			require.Equal(t, device.StateConnected, c.Status().State)
			require.Len(t, w.reasons(), before+2)
		}
		require.Len(t, f.subscriptions(), 1)
		require.Len(t, f.dialTimes(), 1)
	})
}

// The refusal may have been about something else than the feature.
func TestAFeatureThatThePeerGetsIsFoundOnTheSameConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := without(transport.FeatureMethods | transport.FeatureMessages)
		c, _ := client(t, f, nil)
		handleAll(t, c)
		open(t, c)
		f.lack(transport.FeatureMessages)
		time.Sleep(31 * time.Minute)
		require.ErrorContains(t, c.Status().Err, "the peer has no cloud-to-device messages")
		f.lack(0)
		time.Sleep(30 * time.Minute)
		require.NoError(t, c.Status().Err)
		require.Len(t, f.dialTimes(), 1)
	})
}

// One that takes back several is asked for each, to find those that it has.
func TestAPeerThatTakesFeaturesBackIsAskedForEach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := without(0)
		c, _ := client(t, f, nil)
		handleAll(t, c)
		open(t, c)
		f.lack(transport.FeatureMethods)
		f.last().subscribedAgain(refused(transport.Unsupported))
		require.ErrorContains(t, c.Status().Err, "the peer has no direct methods")
		require.True(t, f.last().deliver("1"))
		require.Len(t, f.dialTimes(), 1)
	})
}

// A Send that gives up on a live connection does not name the missing feature as the cause.
func TestAMissingFeatureIsNotTheCauseOfATimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := without(transport.FeatureMethods)
		f.verdict = hold
		c, _ := client(t, f, &device.Options{OperationTimeout: time.Second})
		handleAll(t, c)
		open(t, c)
		err := c.Send(t.Context(), msg(1))
		require.ErrorIs(t, err, transport.Timeout)
		require.NotErrorIs(t, err, transport.Unsupported)
	})
}

func TestInputsWithoutAModuleOrATransportForThemAreRefusedAtTheCall(t *testing.T) {
	handle := accept
	c := made(t, creds(), &fake{}, nil)
	require.ErrorIs(t, c.HandleInput("in", handle), transport.Invalid)
	require.ErrorContains(t, c.HandleInput("in", handle), "a device has no inputs")

	module := creds()
	module.ModuleID = "mod-1"
	c = made(t, module, wireless{&fake{}}, nil)
	err := c.HandleInput("in", handle)
	require.ErrorIs(t, err, transport.Unsupported)
	require.ErrorContains(t, err, "inputs of modules are not available over string and tin cans")
	require.NoError(t, c.HandleInput("in", nil))
}
