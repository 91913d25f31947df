package servicefront_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// BenchmarkQueryOfConnectedDevices reads 1,000 of 10,000 devices that are all connected.
func BenchmarkQueryOfConnectedDevices(b *testing.B) {
	h, _ := hubtest.NewHub(b, nil)
	for i := range 10_000 {
		d, err := h.AddDevice(fmt.Sprint("many-", i))
		require.NoError(b, err)
		hubtest.Login(b, h, d)
	}
	p := hubtest.BackEnd(b, h, hubdata.RightAll)
	for b.Loop() {
		ids, _ := twins(p, "SELECT * FROM devices WHERE connectionState = 'Connected'")
		require.Len(b, ids, 1000)
	}
}

// BenchmarkRegistryOfManyDevices exports 8,000 devices that have a message waiting each, and
// removes them with bulk operations.
func BenchmarkRegistryOfManyDevices(b *testing.B) {
	const devices = 8_000
	h, _ := hubtest.NewHub(b, nil)
	p := hubtest.BackEnd(b, h, hubdata.RightAll)
	container, err := h.ContainerURL("any.example.test", "c-1", time.Hour)
	require.NoError(b, err)
	for b.Loop() {
		b.StopTimer()
		for i := range devices {
			d, err := h.AddDevice(fmt.Sprint("many-", i))
			require.NoError(b, err)
			require.NoError(b, h.SendC2D(d.ID, hubdata.C2D{}))
		}
		b.StartTimer()
		began := time.Now()
		made := p.Post("/jobs/create"+hubtest.Version, `{"type":"export","outputBlobContainerUri":"`+container+`"}`).Object(b)
		for p.Do("GET", "/jobs/"+made["jobId"].(string)+hubtest.Version, "").Object(b)["status"] != "completed" {
			runtime.Gosched()
		}
		exported := time.Now()
		for i := 0; i < devices; i += 100 {
			items := make([]string, 100)
			for n := range items {
				items[n] = fmt.Sprintf(`{"id":"many-%d","importMode":"delete"}`, i+n)
			}
			failed, _ := bulk(p, items...)
			require.Empty(b, failed)
		}
		b.ReportMetric(exported.Sub(began).Seconds(), "s/export")
		b.ReportMetric(time.Since(exported).Seconds(), "s/removal")
	}
}
