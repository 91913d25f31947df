// What a person asks for: the answer of the hub, or its problem, becomes the words of a result.

import {setText} from "./dom.js";

// teller returns a function that acts and tells. The topic, which may be made later, is read again.
export const teller = (result, topic) => async (act, say) => {
  try {
    setText(result, say(await act()));
  } catch (e) {
    setText(result, e.message);
  }
  topic().touch();
};
