// Keeps a page live: when the daemon tells of a change, the page is fetched again and its new content
// is merged into what is shown. Focus, scroll, opened details and typed values stay. Without this
// script everything works by plain links and forms.
"use strict";
(() => {
  const body = document.body;
  const SPACE_MS = 250; // between two fetches
  const RETRY_MS = 2000; // until the stream is opened again
  let stream = null, etag = null, cursor = "", isFetching = false, isStale = false, retry = 0;

  // ---- Live: the stream tells, the page fetches itself ----
  function open() {
    if (stream || document.hidden || "still" in body.dataset) return;
    const query = new URLSearchParams();
    for (const task of (body.dataset.tasks || "").split(" ")) if (task) query.append("task", task);
    query.set("every", body.dataset.every || body.dataset.count);
    stream = new EventSource("/live?" + query);
    // What happened between the rendering and the opening of the stream was missed.
    stream.onopen = () => { setOffline(false); refresh(); };
    stream.addEventListener("change", (event) => { cursor = event.data; refresh(); });
    stream.addEventListener("signed-out", () => location.reload());
    stream.onerror = () => {
      setOffline(true);
      if (stream && stream.readyState === EventSource.CLOSED) {
        close();
        clearTimeout(retry);
        retry = setTimeout(() => { refresh(); open(); }, RETRY_MS);
      }
    };
  }
  // What is pressed while nobody answers would lead to an error page of the browser.
  function setOffline(isOffline) {
    body.classList.toggle("is-offline", isOffline);
    for (const button of document.querySelectorAll(isOffline ? "form[method=post] button:enabled" : "[data-offline]")) {
      button.disabled = isOffline;
      button.toggleAttribute("data-offline", isOffline);
    }
  }
  function close() { if (stream) { stream.close(); stream = null; } }
  // A browser opens six connections to one host: hidden pages must not use them up.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return close();
    release();
    open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => {
    const [visit] = performance.getEntriesByType("navigation");
    // A page of the history has the key of a form that was sent: pressed again, it is meant again.
    if (event.persisted || (visit && visit.type === "back_forward"))
      for (const field of document.querySelectorAll("[name=form_key]")) field.value = crypto.getRandomValues(new Uint32Array(4)).join("-");
    open();
  });

  async function refresh() {
    if (isFetching) { isStale = true; return; }
    isFetching = true;
    try {
      const answer = await fetchPage(location.href);
      // What no page answers, as at an address that does not exist, is no sign-out.
      if (answer.status === 401 && isPage(answer)) { location.reload(); return; }
      const tag = answer.headers.get("etag");
      if (answer.ok && (!tag || tag !== etag)) {
        const text = await answer.text();
        etag = tag;
        show(new DOMParser().parseFromString(text, "text/html"));
      }
      if (answer.ok) setOffline(false);
    } catch { /* The stream's own retries tell when the daemon is back. */ }
    await new Promise((resolve) => setTimeout(resolve, SPACE_MS));
    isFetching = false;
    if (isStale) { isStale = false; refresh(); }
  }

  // With this header it takes no notices, which are for the next page that the person opens.
  function fetchPage(address) { return fetch(address, { headers: { "X-Agent-Cursor": cursor }, cache: "no-cache" }); }
  function isPage(answer) { return (answer.headers.get("content-type") || "").startsWith("text/html"); }

  // The page of a refused form stands at the address of its action, which cannot be fetched. A field
  // that was written to ignores new defaults: what was typed stays when the page is fetched again.
  function standAt(address) {
    history.replaceState(null, "", address);
    for (const field of document.querySelectorAll("#main input:not([type=hidden]), #main textarea")) {
      if (field.type === "checkbox" || field.type === "radio") field.checked = field.checked;
      else field.value = field.value;
    }
  }

  // ---- Merging the new content into what is shown ----
  function show(next) {
    if (!next.getElementById("main")) return;
    document.title = next.title;
    for (const name of ["tasks", "every"]) {
      if (body.dataset[name] === next.body.dataset[name]) continue;
      body.dataset[name] = next.body.dataset[name];
      close(); // The stream is asked for what the page shows now.
    }
    steadily(() => {
      for (const id of ["nav", "main"]) merge(document.getElementById(id), next.getElementById(id));
      writeTimes(document.querySelectorAll("time[datetime]"));
    });
    open();
  }
  function merge(old, fresh) {
    if (!old || !fresh || old.isEqualNode(fresh)) return;
    if (old.name === "form_key") return; // a second press of the same button must send the same key
    mergeAttributes(old, fresh);
    if (old.nodeName === "TIME") return; // its text is written below
    if (old.nodeName === "TEXTAREA") {
      if (old.defaultValue !== fresh.defaultValue) old.defaultValue = fresh.defaultValue;
      return;
    }
    mergeChildren(old, fresh);
  }
  // What is opened and chosen, the person decides; the rest is of this script.
  const ofPerson = new Set(["open", "selected", "aria-disabled"]);
  function mergeAttributes(old, fresh) {
    for (const { name, value } of [...fresh.attributes]) {
      if (ofPerson.has(name)) continue;
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!ofPerson.has(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
  }
  // Elements are paired by their keys. What stays is not moved, since that takes its focus away.
  function mergeChildren(old, fresh) {
    const unpaired = new Map();
    for (const child of old.children) {
      if ("stub" in child.dataset) continue;
      const key = keyOf(child);
      if (!unpaired.has(key)) unpaired.set(key, []);
      unpaired.get(key).push(child);
    }
    const pairs = [...fresh.childNodes].map((child) => [child, isElement(child) && unpaired.get(keyOf(child))?.shift()]);
    for (const gone of [...unpaired.values()].flat()) end(gone);
    let at = unstubbed(old.firstChild);
    for (const [child, match] of pairs) {
      if (!isElement(child) && at && !isElement(at)) {
        if (at.nodeValue !== child.nodeValue) at.nodeValue = child.nodeValue;
        at = unstubbed(at.nextSibling);
        continue;
      }
      while (isElement(child) && at && !isElement(at)) at = removed(at);
      if (!match) { old.insertBefore(document.importNode(child, true), at); continue; }
      if (match !== at && match.contains(document.activeElement))
        while (at !== match) { const next = unstubbed(at.nextSibling); match.after(at); at = next; }
      if (match === at) at = unstubbed(at.nextSibling); else old.insertBefore(match, at);
      merge(match, child);
    }
    while (at) at = removed(at);
  }
  function isElement(node) { return node.nodeType === Node.ELEMENT_NODE; }
  function removed(node) { const next = unstubbed(node.nextSibling); node.remove(); return next; }
  function unstubbed(node) {
    while (node && isElement(node) && "stub" in node.dataset) node = node.nextSibling;
    return node;
  }
  function keyOf(node) {
    const [id, key, title, action, kind, name, value] = ["id", "data-key", "aria-labelledby", "action", "class", "name", "value"]
      .map((each) => node.getAttribute(each) || "");
    const own = id || key || title || action || kind.split(" ")[0];
    return [node.nodeName, own, name, node.nodeName === "BUTTON" ? value : ""].join("\n");
  }

  // ---- Nothing moves under a thumb ----
  // What can be answered and ends leaves a stub of its height, until the page is left or the stub hidden. What is
  // looked at stays where it is, whatever changes above. Controls that move or appear rest for a moment.
  const SETTLE_MS = 700;
  const CONTROLS = "button, input[type=checkbox], input[type=radio]";
  const ENTRIES = "[data-entry], .card.loud";
  const room = { top: 0, bottom: 0 };
  const resting = new Map(); // the timer of each control
  const stubs = new WeakMap(); // by what they stand for
  let isFocusLost = false, pressedEarly = null;
  function isHeld(node) { return node.matches(ENTRIES) && node.querySelector("form"); }
  function end(node) {
    if (![node, ...node.querySelectorAll(ENTRIES)].some(isHeld) && !node.querySelector("[data-stub]")) return node.remove();
    const stub = document.createElement(node.nodeName), heading = node.querySelector("h2, h3, .name");
    const question = node.matches("[data-question]") ? node : node.querySelector("[data-question]");
    const address = question && "/questions/" + encodeURIComponent(question.dataset.question);
    const typed = [...node.querySelectorAll("input[type=text], textarea")].filter((field) => field.value !== field.defaultValue);
    stub.className = (node.matches(".row") ? "row" : "card") + " stub";
    stub.dataset.stub = "";
    stub.tabIndex = -1;
    stub.style.height = node.getBoundingClientRect().height + "px";
    if (heading) write(stub, "p", heading.textContent);
    const ending = write(stub, "p", "This no longer waits for you.");
    if (question) tell(ending, address);
    for (const field of typed) write(stub, "p", "You had typed: " + field.value);
    if (question) write(stub, "a", "See the question").href = address;
    write(stub, "button", "Hide").addEventListener("click", () => { steadily(() => stub.remove()); isFocusLost = false; });
    stubs.set(node, stub);
    node.replaceWith(stub);
  }
  async function tell(ending, address) {
    try {
      const page = new DOMParser().parseFromString(await (await fetchPage(address)).text(), "text/html");
      const decision = page.querySelector("[data-decision]");
      if (decision) ending.textContent = decision.textContent;
    } catch { /* That it no longer waits is true as well. */ }
  }
  function write(parent, name, text) {
    const element = document.createElement(name);
    element.textContent = text;
    parent.append(element);
    return element;
  }
  function release() {
    for (const stub of document.querySelectorAll("[data-stub]")) stub.remove();
    room.top = room.bottom = 0;
    makeRoom();
    for (const control of document.querySelectorAll(CONTROLS)) rest(control);
  }
  function steadily(change) {
    const focused = document.activeElement || body, shown = new Map(), before = new Map();
    const parents = [];
    for (let each = focused; each; each = each.parentElement) parents.push(each);
    for (const each of document.querySelectorAll("#main :is(" + CONTROLS + ", a, summary, input, textarea, select, " + ENTRIES + ", .card)")) {
      const box = each.getBoundingClientRect();
      if (box.height && box.bottom > 0 && box.top < innerHeight) shown.set(each, box);
    }
    for (const each of document.querySelectorAll(CONTROLS)) before.set(each, [each.getBoundingClientRect(), meaningOf(each)]);
    // Of what is looked at: what the pointer is on, what has the focus, what is in the middle; the innermost first.
    // At the top of a list that only grows, what is new is looked at.
    const grows = scrollY <= 0 && ![...shown.keys()].some(isHeld);
    const apart = (each) => { const { top, bottom } = shown.get(each); return Math.max(top - innerHeight / 2, innerHeight / 2 - bottom, 0); };
    const looked = [...document.querySelectorAll(":hover")].reverse().concat(focused)
      .filter((each) => shown.has(each) && !(grows && each.matches(ENTRIES + ", .card")))
      .concat(grows ? [] : [...shown.keys()].reverse().sort((one, other) => apart(one) - apart(other)));
    change();
    const anchor = looked.find((each) => each.isConnected && each.getClientRects().length);
    if (anchor) shift(anchor.getBoundingClientRect().top - shown.get(anchor).top);
    for (const control of document.querySelectorAll(CONTROLS)) {
      const [box, meaning] = before.get(control) || [], now = control.getBoundingClientRect();
      if (!box || Math.hypot(box.left - now.left, box.top - now.top) > 2 || meaning !== meaningOf(control)) rest(control);
    }
    if (!focused.isConnected) moveFocus(parents);
  }
  // Scrolls by what the content above has grown or shrunk; where the page ends, makes room.
  function shift(by) {
    if (Math.abs(by) < 1) return;
    const filled = Math.min(Math.max(by, 0), room.top), lack = Math.max(-by - scrollY, 0);
    const wanted = scrollY + by - filled + lack;
    room.top += lack - filled;
    makeRoom();
    room.bottom += Math.max(wanted + innerHeight - document.documentElement.scrollHeight, 0);
    makeRoom();
    scrollTo({ top: wanted, behavior: "instant" });
  }
  function makeRoom() {
    document.getElementById("notices").style.marginBottom = room.top + "px";
    body.style.paddingBottom = room.bottom + "px";
  }
  // What a press does, but for what the person typed: a new default must not be sent unseen.
  function meaningOf(control) {
    const form = control.type === "submit" && control.form;
    const sent = form ? [...form.querySelectorAll("input:not([name=csrf], [name=form_key]), textarea")] : [];
    return [control.textContent, control.value, form && form.getAttribute("action"), ...sent.map((field) => field.defaultValue)].join("\n");
  }
  function rest(control) {
    clearTimeout(resting.get(control));
    control.setAttribute("aria-disabled", "true");
    resting.set(control, setTimeout(() => { resting.delete(control); control.removeAttribute("aria-disabled"); }, SETTLE_MS));
  }
  function controlOf(event) {
    const pressed = event.target.closest("button, label, input");
    return pressed && (pressed.control || pressed);
  }
  // Without a focus of its choosing, what a person goes on typing is no shortcut.
  function moveFocus(parents) {
    const home = parents.map((each) => stubs.get(each) || each).find((each) => each.isConnected && each.closest("#main > *"));
    if (home) { home.tabIndex = -1; home.focus({ preventScroll: true }); }
    isFocusLost = true;
  }
  document.addEventListener("focusin", () => { isFocusLost = false; });
  document.addEventListener("pointerdown", (event) => {
    isFocusLost = false;
    pressedEarly = resting.has(controlOf(event)) ? controlOf(event) : null;
  }, true);
  document.addEventListener("click", (event) => {
    const control = controlOf(event);
    if (!control || !(resting.has(control) || control === pressedEarly)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const hint = document.getElementById("hint");
    hint.textContent = "That had just moved or appeared. Press it again if you mean it.";
    clearTimeout(Number(hint.dataset.timer));
    hint.dataset.timer = setTimeout(() => { hint.textContent = ""; }, 4000);
  }, true);

  // ---- Times: the distance from now, the full local time on hover ----
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
  const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
  const year = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
  function date(at, now) {
    const then = new Date(at);
    return Math.abs(now - at) < 86400e3 * 7 || then.getFullYear() === new Date(now).getFullYear()
      ? day.format(then) + ", " + clock.format(then) : year.format(then);
  }
  function distance(at, now) {
    const seconds = Math.round((now - at) / 1000), size = Math.abs(seconds);
    const text = size < 60 ? size + "\u00a0s" : size < 3600 ? Math.floor(size / 60) + "\u00a0min"
      : size < 86400 ? Math.floor(size / 3600) + "\u00a0h" : null;
    if (text === null) return date(at, now);
    return size < 2 ? (seconds < 0 ? "now" : "just now") : seconds < 0 ? "in " + text : text + " ago";
  }
  function span(at, now) {
    const size = Math.max(0, Math.round((now - at) / 1000));
    return size < 60 ? size + "\u00a0s" : size < 3600 ? Math.floor(size / 60) + "\u00a0min"
      : size < 86400 * 2 ? Math.floor(size / 3600) + "\u00a0h" : Math.floor(size / 86400) + "\u00a0d";
  }
  const printed = matchMedia("print");
  function writeTimes(times) {
    const now = Date.now();
    for (const time of times) {
      const at = Date.parse(time.dateTime);
      if (Number.isNaN(at)) continue;
      const write = "since" in time.dataset ? span : printed.matches ? exact.format : "date" in time.dataset ? date : distance;
      const text = write(at, now);
      if (time.textContent !== text) time.textContent = text;
      const title = exact.format(at) + " · " + time.dateTime;
      if (time.title !== title) time.title = title;
    }
  }
  const timesNow = (selector) => steadily(() => writeTimes(document.querySelectorAll(selector)));
  const allTimes = () => timesNow("time[datetime]");
  // What has lasted for seconds is written every second, everything else now and then.
  let tick = 0;
  setInterval(() => {
    if (document.hidden) return;
    tick += 1;
    if (tick % 5 === 0) allTimes();
    else if (document.querySelector("time[data-since]")) timesNow("time[data-since]");
  }, 1000);
  printed.addEventListener("change", allTimes); // on paper "5 min ago" says nothing

  // ---- Keyboard ----
  let isGoing = false;
  document.addEventListener("keydown", (event) => {
    const dialog = document.getElementById("keys");
    if (isFocusLost || event.ctrlKey || event.metaKey || event.altKey || !dialog || dialog.open) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (isGoing) {
      isGoing = false;
      const link = document.querySelector('#nav a[data-key="' + CSS.escape(event.key) + '"]');
      if (link) link.click();
      return;
    }
    const search = document.querySelector("[data-search]");
    if (event.key === "?") dialog.showModal();
    else if (event.key === "g") { isGoing = true; setTimeout(() => { isGoing = false; }, 1500); }
    else if (event.key === "/" && search) { event.preventDefault(); search.focus(); }
    else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  });
  function step(by) {
    const entries = [...document.querySelectorAll("[data-entry]")];
    const at = entries.findIndex((entry) => entry.contains(document.activeElement));
    const entry = entries[at < 0 ? (by > 0 ? 0 : entries.length - 1) : at + by];
    const link = entry && (entry.matches("a, button") ? entry : entry.querySelector("a, button"));
    if (link) { link.focus(); entry.scrollIntoView({ block: "nearest" }); }
  }
  // The menu closes when something else is pressed.
  document.addEventListener("click", (event) => {
    const menu = document.getElementById("more");
    const isKeys = event.target.closest("[data-open-keys]");
    if (isKeys) document.getElementById("keys").showModal();
    if (menu && menu.open && (isKeys || !menu.contains(event.target))) menu.open = false;
  });
  // All boxes of a list at once, and the number of chosen ones.
  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.matches("[data-all]"))
      for (const each of document.querySelectorAll('[name="' + CSS.escape(box.dataset.all) + '"]')) each.checked = box.checked;
    if (box.matches("[data-submit]")) box.form.requestSubmit();
  });

  body.classList.add("has-script");
  if (body.dataset.address) standAt(body.dataset.address);
  allTimes();
  const [arrival] = performance.getEntriesByType("navigation");
  // After an action another card stands where its button was: a second press was not meant for that.
  if (arrival && arrival.redirectCount) release();
  open();
})();
