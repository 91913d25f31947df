package dps_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// A client that reads only one of the places of a code, or of a status and a number that contradict
// it, is found by one of the forms.
func TestRefusalsOfUpdatesInEachForm(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *testbroker.DPS, u *testbroker.Updates, c updateClient) {
		for i, f := range fault.UpdateRefusals() {
			operation := []string{"requestSoftwareUpdates", "requestOnboardingUpdates", "reportUpdateStatus"}[i%3]
			code := updatedata.Code(f.Text)
			f.RetryAfter = 2 * time.Second
			d.Inject(f)
			a := c.do(t, operation, firstCheck)
			require.Equal(t, "2", a.retryAfter)
			form := i % 5
			status, number := code.Number()/1000, code.Number()
			if form == 1 || form == 2 {
				require.Empty(t, a.Info.AduErrorCode)
				require.Equal(t, f.Text, a.Message)
			} else {
				require.Equal(t, f.Text, a.Info.AduErrorCode)
				require.NotEqual(t, f.Text, a.Message)
			}
			switch form {
			case 1:
				number = 0
			case 3:
				status = 418
			case 4:
				number = 418000
			}
			require.Equal(t, status, a.status, a.body)
			require.Equal(t, number, a.ErrorCode, a.body)
		}
		require.Len(t, fault.UpdateRefusals(), 5*len(updatedata.Codes()))
		require.Empty(t, u.Devices())
	})
}

func TestFaultsOfProvisioningHappenToUpdates(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *testbroker.DPS, u *testbroker.Updates, c updateClient) {
		deploy(t, u, updatedata.Deployment{WorkflowID: "wf-1"})
		d.Inject(fault.Fault{Kind: fault.RefuseUpdate, Route: fault.RouteUpdateReport})
		for _, text := range []string{"3s", "-1", "Sat, 01 Jan 2000 00:00:07 GMT"} {
			d.Inject(fault.Fault{Kind: fault.WrongRetryAfter, Text: text})
			require.Equal(t, text, c.do(t, "requestSoftwareUpdates", firstCheck).retryAfter)
		}
		whole := c.do(t, "requestSoftwareUpdates", firstCheck).body
		d.Inject(fault.Fault{Kind: fault.GarbleProvisioning})
		require.Equal(t, whole[:len(whole)/2], c.do(t, "requestSoftwareUpdates", firstCheck).body)
		a := c.do(t, "reportUpdateStatus", report("wf-1", success, ""))
		require.Equal(t, 429, a.status)
		require.Equal(t, "THROTTLED", a.Info.AduErrorCode)
		d.Inject(fault.Fault{Kind: fault.DropAfterProvisioning, Route: fault.RouteUpdateReport})
		_, err := c("reportUpdateStatus", report("wf-1", success, ""))
		require.Error(t, err)
		dev := u.Device("reg-1")
		require.Equal(t, updatedata.OutcomeSucceeded, dev.Last().Outcome(), "the report is stored")
	})
}

func TestOfferIsReplaced(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *testbroker.DPS, u *testbroker.Updates, c updateClient) {
		deploy(t, u, updatedata.Deployment{WorkflowID: "wf-1"})
		require.Equal(t, "wf-1", c.do(t, "requestSoftwareUpdates", firstCheck).UpdateMetadata.WorkflowID)
		in := d.Inject(fault.Fault{Kind: fault.WrongOffer, Text: "workflow"})
		other := c.do(t, "requestSoftwareUpdates", firstCheck).UpdateMetadata.WorkflowID
		require.NotEqual(t, "wf-1", other)
		require.Equal(t, 1, in.Fired())
		require.Equal(t, other, c.do(t, "requestSoftwareUpdates", firstCheck).UpdateMetadata.WorkflowID)
		require.Equal(t, 200, c.do(t, "reportUpdateStatus", report(other, success, "")).status)
		require.Nil(t, c.do(t, "requestSoftwareUpdates", firstCheck).UpdateMetadata)
	})
}
