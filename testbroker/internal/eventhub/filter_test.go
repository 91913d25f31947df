package eventhub_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/internal/eventhub"
)

func TestFiltersOfAllClients(t *testing.T) {
	for text, want := range map[string]eventhub.Start{
		"amqp.annotation.x-opt-offset > '-1'":                    {By: eventhub.Earliest},
		"amqp.annotation.x-opt-offset > -1":                      {By: eventhub.Earliest},
		"amqp.annotation.x-opt-offset >= '-1'":                   {By: eventhub.Earliest},
		"amqp.annotation.x-opt-offset > '@latest'":               {By: eventhub.Latest},
		"amqp.annotation.x-opt-offset > '1024'":                  {By: eventhub.Offset, Value: 1024},
		"amqp.annotation.x-opt-offset >= '1024'":                 {By: eventhub.Offset, Value: 1024, Inclusive: true},
		"amqp.annotation.x-opt-sequence-number > '7'":            {By: eventhub.Sequence, Value: 7},
		"amqp.annotation.x-opt-sequence-number >= 7":             {By: eventhub.Sequence, Value: 7, Inclusive: true},
		"amqp.annotation.x-opt-sequence-number > '-1'":           {By: eventhub.Earliest},
		"amqp.annotation.x-opt-enqueued-time > '1700000000000'":  {By: eventhub.Time, Value: 1700000000000},
		" amqp.annotation.x-opt-enqueuedtimeutc > 1700000000000": {By: eventhub.Time, Value: 1700000000000},
	} {
		got, err := eventhub.ParseFilter(text)
		require.Nil(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestFiltersThatAreRefused(t *testing.T) {
	for text, reason := range map[string]eventhub.Reason{
		"":                                    eventhub.BadArgument,
		"x-opt-offset > '1'":                  eventhub.BadArgument,
		"amqp.annotation.x-opt-offset < '1'":  eventhub.BadArgument,
		"amqp.annotation.x-opt-offset > ''":   eventhub.BadArgument,
		"amqp.annotation.x-opt-offset > '1":   eventhub.BadArgument,
		"amqp.annotation.x-opt-offset > '-2'": eventhub.BadArgument,
		"amqp.annotation.x-opt-offset > '9223372036854775807'":        eventhub.BadArgument,
		"amqp.annotation.x-opt-enqueued-time > '@latest'":             eventhub.BadArgument,
		"amqp.annotation.x-opt-partition-key > '1'":                   eventhub.BadArgument,
		"amqp.annotation.x-opt-offset > '1' OR 1 = 1":                 eventhub.BadArgument,
		"amqp.annotation.x-opt-offset > '1:1:2'":                      eventhub.GeoOffset,
		"amqp.annotation.x-opt-offset > '" + strings.Repeat("1", 300): eventhub.BadArgument,
	} {
		_, err := eventhub.ParseFilter(text)
		require.NotNil(t, err, text)
		require.Equal(t, reason, err.Reason, text)
	}
}

func FuzzParseFilter(f *testing.F) {
	f.Add("amqp.annotation.x-opt-offset > '-1'")
	f.Add("amqp.annotation.x-opt-sequence-number >= 7")
	log := eventhub.NewLog[int](1, 0)
	f.Fuzz(func(t *testing.T, text string) {
		start, err := eventhub.ParseFilter(text)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.GreaterOrEqual(t, start.Value, int64(0))
		if at, err := log.Position(0, start); err == nil {
			require.Zero(t, at, "the only position of an empty partition")
		}
	})
}

func FuzzParseAddress(f *testing.F) {
	f.Add("hub/ConsumerGroups/$Default/Partitions/0")
	layout := &eventhub.Layout{Path: "hub", Groups: []string{"$Default", "a"}, Partitions: 4}
	f.Fuzz(func(t *testing.T, path string) {
		at, err := layout.Parse(path)
		if err != nil {
			return
		}
		require.True(t, layout.Owns(path))
		require.Contains(t, layout.Groups, at.Group)
		require.GreaterOrEqual(t, at.Partition, 0)
		require.Less(t, at.Partition, 4)
	})
}

func TestAddresses(t *testing.T) {
	layout := &eventhub.Layout{Path: "hub", Groups: []string{"$Default", "second"}, Partitions: 4}
	at, err := layout.Parse("HUB/consumergroups/$default/partitions/3")
	require.Nil(t, err)
	require.Equal(t, eventhub.Address{Group: "$Default", Partition: 3}, at)
	for path, reason := range map[string]eventhub.Reason{
		"hub/ConsumerGroups/$Default/Partitions/4":   eventhub.OutOfRange,
		"hub/ConsumerGroups/$Default/Partitions/-1":  eventhub.OutOfRange,
		"hub/ConsumerGroups/$Default/Partitions/01":  eventhub.OutOfRange,
		"hub/ConsumerGroups/third/Partitions/0":      eventhub.NotFound,
		"other/ConsumerGroups/$Default/Partitions/0": eventhub.NotFound,
		"hub/ConsumerGroups/$Default":                eventhub.NotFound,
		"hub/Groups/$Default/Partitions/0":           eventhub.NotFound,
	} {
		_, err := layout.Parse(path)
		require.NotNil(t, err, path)
		require.Equal(t, reason, err.Reason, path)
	}
	require.True(t, layout.Owns("Hub/$management"))
	require.False(t, layout.Owns("hubs/$management"))
}

func TestDeviceStaysInItsPartition(t *testing.T) {
	layout := &eventhub.Layout{Path: "hub", Partitions: 4}
	used := map[int]int{}
	for _, device := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "dev-1", "dev-2", "dev-3", "dev-4"} {
		number := layout.PartitionOf(device)
		require.Equal(t, number, layout.PartitionOf(device))
		used[number]++
	}
	require.Len(t, used, 4, "devices are spread over all partitions")
}
