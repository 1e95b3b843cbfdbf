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
    if (body.dataset.every) query.set("every", body.dataset.every);
    stream = new EventSource("/live?" + query);
    // What happened between the rendering and the opening of the stream was missed.
    stream.onopen = () => { body.classList.remove("is-offline"); refresh(); };
    stream.addEventListener("change", (event) => { cursor = event.data; refresh(); });
    stream.addEventListener("signed-out", () => location.reload());
    stream.onerror = () => {
      body.classList.add("is-offline");
      if (stream && stream.readyState === EventSource.CLOSED) {
        close();
        clearTimeout(retry);
        retry = setTimeout(() => { refresh(); open(); }, RETRY_MS);
      }
    };
  }
  function close() { if (stream) { stream.close(); stream = null; } }
  // A browser opens six connections to one host: hidden pages must not use them up.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
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
      const answer = await fetch(location.href, {
        headers: { "X-Agent-Cursor": cursor }, cache: "no-cache", credentials: "same-origin",
      });
      // What no page answers, as at an address that does not exist, is no sign-out.
      if (answer.status === 401 && isPage(answer)) { location.reload(); return; }
      const tag = answer.headers.get("etag");
      if (answer.ok && (!tag || tag !== etag)) {
        const text = await answer.text();
        etag = tag;
        show(new DOMParser().parseFromString(text, "text/html"));
      }
      if (answer.ok) body.classList.remove("is-offline");
    } catch { /* The stream's own retries tell when the daemon is back. */ }
    await new Promise((resolve) => setTimeout(resolve, SPACE_MS));
    isFetching = false;
    if (isStale) { isStale = false; refresh(); }
  }

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
    const focused = document.activeElement;
    const card = focused && focused.closest("[data-question]");
    const typed = card || [...document.querySelectorAll("[data-question]")].find(isTyped);
    document.title = next.title;
    for (const name of ["tasks", "every"]) {
      if (body.dataset[name] === next.body.dataset[name]) continue;
      body.dataset[name] = next.body.dataset[name];
      close(); // The stream is asked for what the page shows now.
    }
    for (const id of ["nav", "main"]) merge(document.getElementById(id), next.getElementById(id));
    if (typed && !typed.isConnected) tellDecision(typed.dataset.question, next);
    allTimes();
    open();
  }
  function isTyped(card) {
    return [...card.querySelectorAll("input:not([type=hidden]), textarea")].some(
      (field) => field.value !== field.defaultValue || field.checked !== field.defaultChecked);
  }
  // A question that was answered elsewhere takes its card away: say who answered it.
  function tellDecision(id, next) {
    const decided = next.getElementById("decided-" + id);
    const notice = document.createElement("p");
    notice.className = "notice";
    notice.tabIndex = -1;
    notice.textContent = decided ? decided.dataset.text : "The question you were looking at is no longer open.";
    document.getElementById("notices").append(notice);
    notice.focus();
  }
  function merge(old, fresh) {
    if (!old || !fresh || old.isEqualNode(fresh)) return;
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || keyOf(old) !== keyOf(fresh)) {
      old.replaceWith(document.importNode(fresh, true));
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.name === "form_key") return; // a second press of the same button must send the same key
    mergeAttributes(old, fresh);
    if (old.nodeName === "TIME") return; // its text is written below
    if (old.nodeName === "TEXTAREA") {
      if (old.defaultValue !== fresh.defaultValue) old.defaultValue = fresh.defaultValue;
      return;
    }
    mergeChildren(old, fresh);
  }
  const ofPerson = new Set(["open", "selected"]); // what is opened and chosen, the person decides
  function mergeAttributes(old, fresh) {
    for (const { name, value } of [...fresh.attributes]) {
      if (ofPerson.has(name)) continue;
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!ofPerson.has(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
  }
  function mergeChildren(old, fresh) {
    const keyed = new Map();
    for (const child of old.children) if (keyOf(child)) keyed.set(keyOf(child), child);
    let at = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      const key = keyOf(child);
      const match = key ? keyed.get(key) : null;
      if (match) {
        if (match !== at) old.insertBefore(match, at); else at = at.nextSibling;
        keyed.delete(key);
        merge(match, child);
      } else if (at && !key && !keyOf(at) && at.nodeName === child.nodeName) {
        const next = at.nextSibling;
        merge(at, child);
        at = next;
      } else {
        old.insertBefore(document.importNode(child, true), at);
      }
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  }
  function keyOf(node) { return (node.id || (node.dataset && node.dataset.key)) || ""; }

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
  const allTimes = () => writeTimes(document.querySelectorAll("time[datetime]"));
  // What has lasted for seconds is written every second, everything else now and then.
  let tick = 0;
  setInterval(() => {
    if (document.hidden) return;
    tick += 1;
    if (tick % 5 === 0) allTimes();
    else writeTimes(document.querySelectorAll("time[data-since]"));
  }, 1000);
  printed.addEventListener("change", allTimes); // on paper "5 min ago" says nothing

  // ---- Keyboard ----
  let isGoing = false;
  document.addEventListener("keydown", (event) => {
    const dialog = document.getElementById("keys");
    if (event.ctrlKey || event.metaKey || event.altKey || !dialog || dialog.open) return;
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
  open();
})();
