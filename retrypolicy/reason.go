package retrypolicy

// Reason says why there was no further attempt. It is an error, so that errors.Is(err,
// retrypolicy.ReasonOutOfAttempts) works on an error of Do or of a device client.
type Reason uint8

const (
	ReasonPolicy        Reason = iota // the policy gave no other reason
	ReasonNotRetryable                // a repetition would fail too
	ReasonUnsafe                      // it must not happen twice, and may have; in httpretry also: cannot be sent twice
	ReasonOutOfAttempts               // the limit of attempts was reached
	ReasonOutOfTime                   // the time for all attempts is used up, or would be after the delay
	ReasonOutOfQuota                  // the operations that share a budget made too many retries
	ReasonPushback                    // the service asked not to retry, or (compat.Azcore) for too long a wait
	ReasonRejected                    // the policy refused the attempt before it began; see Series.Admit
	ReasonPastDeadline                // the delay would have ended after the context's deadline
	ReasonCancelled                   // the context ended
	ReasonNegativeDelay               // the policy wanted a negative delay, which is a mistake in it

	reasons // number of reasons

	// meant marks a retry whose short Delay is meant; see the function Decide.
	meant = reasons
)

var reasonText = [reasons]string{
	ReasonPolicy:        "stopped by the retry policy",
	ReasonNotRetryable:  "not retryable",
	ReasonUnsafe:        "not safe to repeat",
	ReasonOutOfAttempts: "out of attempts",
	ReasonOutOfTime:     "out of time",
	ReasonOutOfQuota:    "retry quota exceeded",
	ReasonPushback:      "the service asked not to retry",
	ReasonRejected:      "rejected before the attempt",
	ReasonPastDeadline:  "deadline is before the next attempt",
	ReasonCancelled:     "cancelled",
	ReasonNegativeDelay: "the retry policy returned a negative delay",
}

// Error returns the reason in a few words.
func (r Reason) Error() string { return r.String() }

// String returns the reason in a few words.
func (r Reason) String() string {
	if r >= reasons {
		return "undefined reason"
	}
	return reasonText[r]
}

func stop(r Reason) Decision { return Decision{Reason: r} }
