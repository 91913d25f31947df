package faults_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
)

func FuzzReadRequest(f *testing.F) {
	f.Add("killtcp", "boom", "1", "5")
	f.Add("KillAmqpc2dLink", "", "", "")
	f.Add("InvokeThrottling", "20", "99999999999999999999", "-1")
	f.Fuzz(func(t *testing.T, kind, reason, delay, duration string) {
		m := hubdata.Message{DeviceID: "d", Properties: []hubdata.Property{
			{Name: "AzIoTHub_FaultOperationType", Value: kind}, {Name: "AzIoTHub_FaultOperationCloseReason", Value: reason},
			{Name: "AzIoTHub_FaultOperationDelayInSecs", Value: delay}, {Name: "AzIoTHub_FaultOperationDurationInSecs",
				Value: duration},
		}}
		_, o, ok := faults.ReadRequest(m)
		if !ok {
			return
		}
		if !strings.EqualFold(o.Type, kind) || o.Reason != reason || o.Delay < 0 || o.Duration < 0 ||
			o.Delay%time.Second != 0 || o.Happened {
			t.Fatalf("%q %q %q %q read as %+v", kind, reason, delay, duration, o)
		}
	})
}
