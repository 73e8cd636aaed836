// requests.js: requests to gnstord, and the token that they carry. Every request is a GET of one of PATHS: the
// page reads and changes nothing. tests/daemon/dashboard_test.cpp compares PATHS with openapi.json.

/** Relative to the page: a proxy may serve both below another path. */
export const PATHS = {
  status: "v1/status",
  ssds: "v1/ssds",
  health: "v1/health",
  events: "v1/events",
  volumes: "v1/volumes",
  clients: "v1/clients",
  capacity: "v1/capacity",
};
export const DEADLINE_MS = 10000;
const STORED_AS = "gnstor.token";

let token = "";
try {
  token = sessionStorage.getItem(STORED_AS) ?? "";
} catch {
  // Storage is switched off: the token is kept while the page is open.
}

/** As gnstord checks it (RFC 6750, 2.1). Other characters could not be sent in a header. */
export const isToken = (text) => /^[A-Za-z0-9\-._~+/=]{16,256}$/.test(text);
export const hasToken = () => token !== "";

export function setToken(text) {
  token = text;
  try {
    if (text) sessionStorage.setItem(STORED_AS, text);
    else sessionStorage.removeItem(STORED_AS);
  } catch {
    // As above.
  }
}

/**
 * Asks for one of PATHS. Returns {data}, or {failure, message}: "silent" (no answer, and no message), "token"
 * (gnstord takes a token, or another one), "refused" (any other answer). Never throws.
 */
export async function ask(name, query = "") {
  let response, body;
  try {
    response = await fetch(PATHS[name] + query, {
      headers: token ? { Authorization: `Bearer ${token}` } : {},
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(DEADLINE_MS),
    });
    body = await response.text();
  } catch {
    return { failure: "silent" };  // also after DEADLINE_MS
  }
  let data;
  try {
    data = JSON.parse(body);
  } catch {
    return { failure: "refused", message: `what answers is not gnstord (status ${response.status}, no JSON)` };
  }
  if (response.ok) return { data };
  const message = String(data?.error?.message ?? `status ${response.status}`);
  return { failure: response.status === 401 ? "token" : "refused", message };
}
