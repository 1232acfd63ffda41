// Numbers refresh by themselves: the page is fetched again, and those parts of it that are marked data-live
// take the place of the old ones. What one has marked, opened or focused stays. Everything works without this
// script, too, but for that.
"use strict";
(() => {
	const every = 2000;
	const live = document.querySelectorAll("[data-live]");
	const status = document.getElementById("live");
	let paused = false, failures = 0, timer = null;

	// ---- times: the viewer's own zone beside the server's
	const showTimes = (root) => {
		for (const time of root.querySelectorAll("time:not([data-local])")) {
			const date = new Date(time.dateTime);
			if (!isNaN(date)) {
				time.title = date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) + "\n" + time.title;
			}
			time.dataset.local = "";
		}
	};

	// ---- what has to survive a refresh
	const keyOf = (element) => [element.tagName, element.name, element.value, element.getAttribute("href"), element.textContent.slice(0, 80)].join("\n");
	const focusable = "a, button, input, summary, [tabindex]";
	const remember = (region) => {
		const focused = region.contains(document.activeElement) ? document.activeElement : null;
		return {
			marked: new Set([...region.querySelectorAll("input[type=checkbox]:checked")].map((box) => box.value)),
			open: new Set([...region.querySelectorAll("details[open]")].map((details) => details.dataset.key)),
			scrolled: [...region.querySelectorAll("pre, .scroll")].map((box) => [box.scrollLeft, box.scrollTop]),
			at: region.querySelector("tr.at")?.dataset.key,
			focus: focused && keyOf(focused),
		};
	};
	const restore = (region, kept) => {
		for (const box of region.querySelectorAll("input[type=checkbox]")) box.checked = kept.marked.has(box.value);
		for (const details of region.querySelectorAll("details")) details.open = kept.open.has(details.dataset.key);
		region.querySelectorAll("pre, .scroll").forEach((box, i) => {
			if (kept.scrolled[i]) [box.scrollLeft, box.scrollTop] = kept.scrolled[i];
		});
		if (kept.at) for (const row of region.querySelectorAll("tr[data-key]")) row.classList.toggle("at", row.dataset.key === kept.at);
		if (kept.focus) [...region.querySelectorAll(focusable)].find((element) => keyOf(element) === kept.focus)?.focus({ preventScroll: true });
	};
	// A click is lost if its node is replaced between the press and the release. (Of which one may hear nothing.)
	let pressedUntil = 0;
	const pressedFor = (milliseconds) => () => { pressedUntil = performance.now() + milliseconds; };
	document.addEventListener("pointerdown", pressedFor(30000), true);
	for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, pressedFor(300), true);
	const isInUse = (region) => {
		const focused = document.activeElement;
		const selection = document.getSelection();
		return (region.contains(focused) && focused.matches("input:not([type=checkbox]), select, textarea")) ||
			(selection && !selection.isCollapsed && region.contains(selection.anchorNode));
	};

	// While jobs are marked no row comes or goes: those that are shown change, those that would be gone are
	// dimmed.
	const mergeRows = (region, fresh) => {
		const rows = new Map([...fresh.querySelectorAll("tr[data-key]")].map((row) => [row.dataset.key, row]));
		for (const row of region.querySelectorAll("tr[data-key]")) {
			const now = rows.get(row.dataset.key);
			row.classList.toggle("gone", !now);
			if (!now || row.innerHTML === now.innerHTML) continue;
			const kept = remember(row);
			row.replaceChildren(...now.childNodes);
			restore(row, kept);
		}
	};
	const merge = (region, fresh) => {
		if (isInUse(region) || performance.now() < pressedUntil) return;
		if ("rows" in region.dataset && region.querySelector("input:checked")) mergeRows(region, fresh);
		else {
			const kept = remember(region);
			region.replaceChildren(...fresh.childNodes);
			restore(region, kept);
		}
		addMarkAll();
		showTimes(region);
	};

	// ---- refresh
	const say = (text) => { status.textContent = text; };
	const refresh = async () => {
		clearTimeout(timer);
		if (!paused && !document.hidden) {
			try {
				const response = await fetch(location.href, { headers: { "X-Refresh": "1" }, redirect: "error", signal: AbortSignal.timeout(15000) });
				const text = await response.text();
				const page = new DOMParser().parseFromString(text, "text/html");
				if (!response.ok) throw new Error(response.status);
				for (const region of live) {
					const fresh = page.getElementById(region.id);
					if (fresh) merge(region, document.adoptNode(fresh));
				}
				failures = 0;
				say("");
			} catch (error) {
				failures++;
				say("No refresh: the dashboard does not answer, or you are signed out.");
			}
		}
		timer = setTimeout(refresh, every * Math.min(1 + failures, 10));
	};

	// ---- marks
	const addMarkAll = () => {
		const head = document.querySelector("table[data-rows] thead th:first-child");
		if (!head || !document.getElementById("marked") || head.querySelector("input")) return;
		const all = document.createElement("input");
		all.type = "checkbox";
		all.setAttribute("aria-label", "Mark all shown");
		all.addEventListener("change", () => {
			for (const box of boxes()) box.checked = all.checked;
			count();
		});
		head.replaceChildren(all);
	};
	const boxes = () => document.querySelectorAll("table[data-rows] tbody input[type=checkbox]");
	const count = () => {
		const marked = [...boxes()].filter((box) => box.checked).length;
		const label = document.getElementById("count");
		if (label) label.textContent = marked ? marked + " marked:" : "Marked:";
	};
	let last = null;
	document.addEventListener("click", (event) => {
		if (!event.target.matches("table[data-rows] tbody input[type=checkbox]")) return;
		const all = [...boxes()], from = all.findIndex((box) => box.value === last), to = all.indexOf(event.target);
		if (event.shiftKey && from >= 0) for (const box of all.slice(Math.min(from, to), Math.max(from, to) + 1)) box.checked = event.target.checked;
		last = event.target.value;
		count();
	});

	// ---- keys
	const pages = "ojqwsber";
	let afterG = false;
	const move = (step) => {
		const rows = [...document.querySelectorAll("tbody tr[data-key]")];
		const at = rows.findIndex((row) => row.classList.contains("at"));
		const next = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
		if (!next) return;
		rows[at]?.classList.remove("at");
		next.classList.add("at");
		next.querySelector("a")?.focus();
		next.scrollIntoView({ block: "nearest" });
	};
	const keys = {
		"/": () => document.querySelector("input[name=worker], input[name=to]")?.focus(),
		j: () => move(1),
		k: () => move(-1),
		x: () => document.querySelector("tr.at input[type=checkbox]")?.click(),
		p: () => pause(),
	};
	document.addEventListener("keydown", (event) => {
		if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), textarea, select")) return;
		const page = pages.indexOf(event.key);
		if (afterG && page >= 0) document.querySelectorAll("nav a")[page]?.click();
		else if (keys[event.key]) keys[event.key]();
		else {
			afterG = event.key === "g";
			return;
		}
		afterG = false;
		event.preventDefault();
	});

	// ---- footer
	const pause = () => {
		paused = !paused;
		button.textContent = paused ? "Refresh again" : "Pause refresh";
		button.setAttribute("aria-pressed", paused);
		if (!paused) refresh();
	};
	const button = document.createElement("button");
	button.className = "quiet";
	button.textContent = "Pause refresh";
	button.addEventListener("click", pause);

	showTimes(document);
	addMarkAll();
	count();
	if (live.length) {
		const help = document.createElement("span");
		help.textContent = "Keys: / search · j k rows · x mark · p pause · g and o j q w s b e r the pages";
		status.before(button, help);
		timer = setTimeout(refresh, every);
		document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
	}
})();
