// Package policies has the retry policies of the SDK by name, with their parameters.
package policies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
)

// Named is a policy under its name.
type Named struct {
	Name, Help string
	// Parameters are its own, "name=default".
	Parameters []string

	make func(v *values) (retrypolicy.Policy, error)
}

// common are the parameters that all policies have.
var common = []string{"attempts=0", "elapsed=0"}

// All are the policies, the default first.
var All = slices.Concat([]Named{
	{"azure", "exponential back-off with jitter, as the Azure device SDKs document it",
		[]string{"c=100ms", "cmin=100ms", "cmax=10s", "jd=0.5", "ju=0.25"},
		func(v *values) (retrypolicy.Policy, error) {
			return retrypolicy.ExponentialBackoffWithJitter{C: v.duration("c"), Cmin: v.duration("cmin"),
				Cmax: v.duration("cmax"), Jd: v.number("jd"), Ju: v.number("ju")}, nil
		}},
	{"throttled", "the delays after throttling, unless a policy is set for them",
		[]string{"c=5s", "cmin=10s", "cmax=60s", "jd=0.5", "ju=0.25"},
		func(v *values) (retrypolicy.Policy, error) {
			return retrypolicy.ExponentialBackoffWithJitter{C: v.duration("c"), Cmin: v.duration("cmin"),
				Cmax: v.duration("cmax"), Jd: v.number("jd"), Ju: v.number("ju")}, nil
		}},
	{"exponential", "exponential back-off; jitter is none, full, equal, decorrelated, proportional, and others",
		[]string{"base=100ms", "factor=2", "max=10s", "jitter=full", "low=0.8", "high=1.2"},
		func(v *values) (retrypolicy.Policy, error) {
			b := retrypolicy.Backoff{Base: v.duration("base"), Factor: v.number("factor"), Max: v.duration("max"),
				Jitter: v.jitter("jitter")}
			if low, high := v.number("low"), v.number("high"); b.Jitter == retrypolicy.JitterProportional {
				b.Low, b.High = low, high
			}
			return b, nil
		}},
	{"fixed", "the same delay each time", []string{"delay=1s", "jitter=0.2"},
		func(v *values) (retrypolicy.Policy, error) {
			return retrypolicy.Fixed{Delay: v.duration("delay"), Jitter: v.number("jitter")}, nil
		}},
	{"incremental", "a delay that grows by one step each time", []string{"step=1s", "max=30s", "jitter=0.2"},
		func(v *values) (retrypolicy.Policy, error) {
			return retrypolicy.Incremental{Step: v.duration("step"), Max: v.duration("max"), Jitter: v.number("jitter")}, nil
		}},
	fixed("immediately", "no delay", retrypolicy.Immediately{}),
	fixed("none", "no retry", retrypolicy.NoRetry{}),
	fixed("azure-java", "the code of the Azure device SDK for Java", compat.AzureJava{}),
	fixed("azure-java-messages", "the same for messages, without a fast first retry", compat.AzureJava{Resend: true}),
	fixed("azure-node", "the code of the Azure device SDK for Node", compat.AzureNode()),
	fixed("azure-node-document", "what that SDK documents", compat.AzureNodeDocumented()),
	fixed("azure-csharp", "the code of the Azure device SDK 2.x for C#", compat.AzureCSharp{}),
	fixed("azure-csharp-1", "the code of the Azure device SDK 1.x for C#", compat.AzureCSharpV1()),
	fixed("azure-c", "the code of the Azure device SDK for C", compat.AzureC{}),
	fixed("azure-iot-operations", "the Azure IoT Operations SDK for Go", compat.AzureIoTOperations()),
	fixed("azcore", "the Azure SDK for Go", compat.Azcore{}),
	fixed("truncated", "the note on truncated exponential back-off", compat.Truncated()),
	fixed("truncated-exponential", "the delays of that note after 5xx and 429", compat.TruncatedExponential{}),
	fixed("fetch-retry", "fetch-retry, for JavaScript", compat.FetchRetryDefaults()),
	fixed("retryablehttp", "go-retryablehttp", compat.RetryableHTTP{}),
	fixed("failsafe", "failsafe-go with exponential delays, 1 s to 1 min", compat.Failsafe{Retries: -1, Delay: time.Second,
		Max: time.Minute}),
	fixed("polly", "Polly, version 8, exponential with jitter", compat.Polly{Retries: 3, Delay: 2 * time.Second,
		Curve: compat.PollyExponential, Jitter: true}),
	fixed("cenkalti", "cenkalti/backoff, version 4, with its limit of 15 minutes", compat.CenkaltiV4()),
	fixed("grpc", "gRPC, the example of gRFC A6", compat.GRPC{Attempts: 5, Initial: 100 * time.Millisecond,
		Max: time.Second, Multiplier: 2}),
	fixed("aws-go-backoff", "the delays of the AWS SDK for Go before 2026", compat.AWSGoBackoff{Max: 20 * time.Second}),
	{"aws-adaptive", "the adaptive mode of the AWS SDKs", nil,
		func(*values) (retrypolicy.Policy, error) { return compat.AWSMode("adaptive", 0) }},
}, presets())

// fixed returns a policy without parameters of its own.
func fixed(name, help string, p retrypolicy.Policy) Named {
	return Named{name, help, nil, func(*values) (retrypolicy.Policy, error) { return p, nil }}
}

// presets returns the presets of the AWS SDKs. Each policy has a quota of its own.
func presets() (all []Named) {
	for _, p := range compat.AWSPresets() {
		all = append(all, Named{string(p), "the AWS SDKs: " + strings.ReplaceAll(string(p[len("aws-"):]), "-", " "), nil,
			func(*values) (retrypolicy.Policy, error) { return compat.NewAWS(p.Options()) }})
	}
	return all
}

var jitters = []struct {
	name  string
	value retrypolicy.Jitter
}{
	{"none", retrypolicy.JitterNone}, {"full", retrypolicy.JitterFull}, {"equal", retrypolicy.JitterEqual},
	{"decorrelated", retrypolicy.JitterDecorrelated},
	{"decorrelated-smithy", retrypolicy.JitterDecorrelatedSmithy},
	{"decorrelated-v2", retrypolicy.JitterDecorrelatedV2}, {"proportional", retrypolicy.JitterProportional},
}

// Names returns the names of all policies.
func Names() (all []string) {
	for _, p := range All {
		all = append(all, p.Name)
	}
	return all
}

// Find returns the row of a name.
func Find(name string) (*Named, error) {
	i := slices.IndexFunc(All, func(p Named) bool { return p.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no policy %q; give one of %s", name, strings.Join(Names(), ", "))
	}
	return &All[i], nil
}

// Parse returns the policy that text names: NAME or NAME:PARAMETER=VALUE,PARAMETER=VALUE.
func Parse(text string) (retrypolicy.Policy, error) {
	name, list, _ := strings.Cut(text, ":")
	p, err := Find(name)
	if err != nil {
		return nil, err
	}
	v := &values{of: map[string]string{}}
	v.take(p.Parameters)
	v.take(common)
	for item := range strings.SplitSeq(list, ",") {
		if item == "" {
			continue
		}
		key, value, ok := strings.Cut(item, "=")
		if _, has := v.of[key]; !ok || !has {
			return nil, fmt.Errorf("policy %s: %q is not one of its parameters; give %s", name, item,
				strings.Join(slices.Concat(p.Parameters, common), ", "))
		}
		v.of[key] = value
	}
	policy, err := p.make(v)
	if err == nil {
		policy, err = v.limit(policy), v.err
	}
	if err == nil {
		err = retrypolicy.Validate(policy)
	}
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	return policy, nil
}

// values are the parameters of a policy, and the first mistake among them.
type values struct {
	of  map[string]string
	err error
}

func (v *values) take(defaults []string) {
	for _, text := range defaults {
		key, value, _ := strings.Cut(text, "=")
		v.of[key] = value
	}
}

func (v *values) fail(key, want string) {
	if v.err == nil {
		v.err = fmt.Errorf("%s=%s is not %s", key, v.of[key], want)
	}
}

func (v *values) duration(key string) time.Duration {
	if v.of[key] == "0" {
		return 0
	}
	d, err := time.ParseDuration(v.of[key])
	if err != nil || d < 0 {
		v.fail(key, "a duration; write 500ms, 10s or 1m30s")
	}
	return d
}

func (v *values) number(key string) float64 {
	n, err := strconv.ParseFloat(v.of[key], 64)
	if err != nil {
		v.fail(key, "a number; write 0.5")
	}
	return n
}

func (v *values) jitter(key string) retrypolicy.Jitter {
	var names []string
	for _, j := range jitters {
		if j.name == v.of[key] {
			return j.value
		}
		names = append(names, j.name)
	}
	v.fail(key, "a kind of jitter; write "+strings.Join(names, ", "))
	return retrypolicy.JitterNone
}

// limit applies the parameters that all policies have.
func (v *values) limit(p retrypolicy.Policy) retrypolicy.Policy {
	attempts, err := strconv.Atoi(v.of["attempts"])
	if err != nil || attempts < 0 {
		v.fail("attempts", "a count; write 5, or 0 for no limit")
	}
	if attempts > 0 {
		p = retrypolicy.MaxAttempts{Total: attempts, Policy: p}
	}
	if most := v.duration("elapsed"); most > 0 {
		p = retrypolicy.MaxElapsed{Limit: most, Policy: p}
	}
	return p
}
