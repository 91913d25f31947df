package fault_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/fault"
)

func TestAFaultThatCannotMeanWhatItSaysIsRefused(t *testing.T) {
	const minutes = 10 * time.Minute
	for _, c := range []struct {
		f     fault.Fault
		field string // empty: taken
	}{
		{fault.Fault{Kind: fault.RefuseConnect}, ""},
		{fault.Fault{Kind: fault.RefuseConnect, For: minutes}, "For"},
		{fault.Fault{Kind: fault.RefuseConnect, For: minutes, Times: -1}, ""},
		{fault.Fault{Kind: fault.RefuseConnect, For: minutes, Times: 1}, ""},
		{fault.Fault{Kind: fault.AnswerStatus, For: minutes}, "For"},
		{fault.Fault{Kind: fault.AnswerStatus, For: minutes, Statuses: []int{503, 0}}, ""},
		{fault.Fault{Kind: fault.AnswerStatus, Statuses: []int{503, 100}}, "Statuses"},
		{fault.Fault{Kind: fault.HalfOpen}, ""}, // until it is removed
		{fault.Fault{Kind: fault.HalfOpen, For: minutes, After: 2}, ""},
		{fault.Fault{Kind: fault.Absent, Times: -1}, ""},
		{fault.Fault{Kind: fault.HalfOpen, Times: 1}, "Times"},
		{fault.Fault{Kind: fault.Throttle, Probability: .5}, "Probability"},
		{fault.Fault{Kind: fault.Throttle, Limit: -1}, "Limit"},
		{fault.Fault{Kind: fault.Throttle, Rate: -1}, "Rate"},
		{fault.Fault{Kind: fault.Quota, Limit: -1}, ""}, // none at all
		{fault.Fault{}, "Kind"},
		{fault.Fault{Kind: math.MaxUint16}, "Kind"},
		{fault.Fault{Kind: fault.DropConnect, After: -1}, "After"},
		{fault.Fault{Kind: fault.DropConnect, For: -1, Times: -1}, "For"},
		{fault.Fault{Kind: fault.DropConnect, Probability: 1.5}, "Probability"},
		{fault.Fault{Kind: fault.DropConnect, Probability: math.NaN()}, "Probability"},
		{fault.Fault{Kind: fault.SlowConnack, Delay: -1}, "Delay"},
		{fault.Fault{Kind: fault.RefuseConnect, RetryAfter: -1}, "RetryAfter"},
		{fault.Fault{Kind: fault.RefuseConnect, Description: strings.Repeat("x", 65536)}, "Description"},
		{fault.Fault{Kind: fault.RefuseConnect, ServerReference: strings.Repeat("x", 65536)}, "ServerReference"},
	} {
		err := c.f.Check()
		if c.field == "" {
			require.NoError(t, err, "%+v", c.f)
			continue
		}
		var wrong *fault.Error
		require.ErrorAs(t, err, &wrong, "%+v", c.f)
		require.Equal(t, c.field, wrong.Field, "%+v", c.f)
		require.NotEmpty(t, wrong.Fix)
	}
	require.EqualError(t, (&fault.Fault{Kind: fault.RefuseConnect, For: minutes}).Check(),
		"For 10m0s ends nothing: RefuseConnect happens once; give Times too, negative for as long as For")
}

// A kind has a name, its fields are fields of Fault, and its defaults are of fields that it uses.
func TestTheRowsOfKinds(t *testing.T) {
	all := slices.Concat(fault.Kinds(), fault.CertificateKinds(), fault.ProvisioningKinds(), fault.BrokerKinds(),
		fault.GatewayKinds(), fault.MQTTv5Kinds(), fault.UpdateKinds())
	require.Equal(t, "Kind(65535)", fault.Kind(math.MaxUint16).String())
	names := make(map[string]bool)
	for _, k := range all {
		require.NotContains(t, k.String(), "(")
		require.NotZero(t, k.Protocols(), k)
		names[k.String()] = true
		plain, resolved := reflect.ValueOf(fault.Fault{Kind: k, Times: 1}), reflect.ValueOf(fault.Fault{Kind: k}.Resolved())
		uses := k.Fields()
		for i := range plain.NumField() {
			name := plain.Type().Field(i).Name
			uses = slices.DeleteFunc(uses, func(used string) bool { return used == name })
			if !reflect.DeepEqual(plain.Field(i).Interface(), resolved.Field(i).Interface()) {
				require.Contains(t, append(k.Fields(), "Bytes"), name, "%s has a default for it", k)
			}
		}
		require.Empty(t, uses, "%s has fields that Fault lacks", k)
	}
	require.Len(t, names, len(all), "each kind is of one group, and has a name of its own")
}
