"use strict";
const GPUS = {{ gpus | safe }};
const WAYS = {native: "runs natively", jit: "by JIT", partial: "kernels missing", none: "does not run", unnamed: "not in its machines", without: "no code for GPUs"};
const COUNTED = {native: "natively", jit: "by JIT", partial: "with kernels missing", none: "not at all", unnamed: "not in their machines", without: "without code for GPUs"};
const MAKES = ["", "GeForce ", "GeForce RTX ", "GeForce GTX ", "Quadro ", "Tesla ", "RTX ", "Jetson "];
const box = document.querySelector("#search"), only = document.querySelector("#only");
const state = document.querySelector("#state");
const wheels = [...document.querySelectorAll(".wheel")];

// The GPUs that some words name: a capability, an architecture, a generation or a product.
function named(words) {
  const text = words.join(" ").toLowerCase();
  if (!text) return [];
  const number = text.match(/^(?:sm|compute)?[ _]?(\d{1,2})\.?(\d)[af]?$/);
  const exact = number ? GPUS.filter(gpu => gpu.capability === `${number[1]}.${number[2]}`) : [];
  if (exact.length) return exact;
  const kin = GPUS.filter(gpu => gpu.generation.toLowerCase() === text);
  if (kin.length) return kin;
  return GPUS.filter(gpu => gpu.products && MAKES.some(make => new RegExp(`^(?:${gpu.products})$`, "i").test(make + text)));
}

// Words that name projects stand before or behind those that name GPUs.
function understood(text) {
  const words = text.trim().split(/\s+/).filter(word => word);
  for (let size = words.length; size > 0; size--) {
    for (const start of new Set([0, words.length - size])) {
      const gpus = named(words.slice(start, start + size));
      const rest = [...words.slice(0, start), ...words.slice(start + size)];
      if (gpus.length && fits(rest).length) return {gpus, shown: fits(rest), card: words.slice(start, start + size).join(" ")};
    }
  }
  return {gpus: [], shown: fits(words), card: ""};
}

function fits(words) {
  return wheels.filter(wheel => words.every(word => wheel.dataset.label.includes(word.toLowerCase())));
}

// How a wheel runs on the worst of some GPUs, and whether that is doubtful.
function worst(wheel, gpus) {
  const order = ["native", "jit", "partial", "none", "unnamed", "without"];
  const cells = gpus.map(gpu => wheel.querySelector(`.strip [data-gpu="${gpu.capability}"]`));
  const kinds = cells.map(cell => order.indexOf(cell?.className.split(" ")[0] ?? "without"));
  const way = Math.max(...kinds);
  const doubtful = cells.some((cell, place) => kinds[place] === way && /.\?$/.test(cell?.textContent ?? ""));
  return {way: order[way], doubtful};
}

function told(found, counts) {
  if (!box.value.trim()) return `${wheels.length} wheels`;
  if (!found.gpus.length) {
    const none = "Nothing is called so. Try a card (RTX 3090), a compute capability (8.6), a generation (Ampere) or a project (torch).";
    return found.shown.length ? `${found.shown.length} of ${wheels.length} wheels` : none;
  }
  const devices = found.gpus.map(gpu => gpu.capability).join(", ");
  const kin = [...new Set(found.gpus.map(gpu => gpu.generation))].join(", ");
  const parts = Object.entries(COUNTED).filter(([kind]) => counts[kind]).map(([kind, way]) => `${counts[kind]} ${way}`);
  const many = found.shown.length, run = many === 1 ? "1 wheel" : `${many} wheels`;
  if (counts.doubtful) parts[parts.length - 1] += `; doubtful for ${counts.doubtful}`;
  return `${found.card}: ${kin}, compute capability ${devices}. Of ${run}: ${parts.join(", ")}.`;
}

function search() {
  const found = understood(box.value), counts = {};
  const shown = new Set(found.shown), devices = new Set(found.gpus.map(gpu => gpu.capability));
  document.body.classList.toggle("asked", found.gpus.length > 0);
  only.disabled = !found.gpus.length;
  for (const cell of document.querySelectorAll("[data-gpu]")) cell.classList.toggle("picked", devices.has(cell.dataset.gpu));
  for (const wheel of wheels) {
    const {way, doubtful} = found.gpus.length ? worst(wheel, found.gpus) : {way: "", doubtful: false};
    for (const kind of shown.has(wheel) ? [way, doubtful ? "doubtful" : ""] : []) counts[kind] = (counts[kind] ?? 0) + 1;
    const runs = way === "native" || way === "jit";
    wheel.hidden = !shown.has(wheel) || (only.checked && !only.disabled && !runs);
    const answer = wheel.querySelector(".answer");
    answer.textContent = way ? WAYS[way] + (doubtful ? "?" : "") : "";
    answer.className = `answer ${way}`;
  }
  for (const project of document.querySelectorAll(".project")) {
    project.hidden = !project.querySelector(".wheel:not([hidden])");
  }
  state.textContent = told(found, counts);
}

let pending = 0;
function later() {
  clearTimeout(pending);
  pending = setTimeout(() => {
    search();
    history.replaceState(null, "", box.value ? `#${encodeURIComponent(box.value)}` : location.pathname);
  }, 120);
}
box.addEventListener("input", later);
only.addEventListener("change", search);
document.querySelector("form").addEventListener("submit", event => { event.preventDefault(); search(); });
function fromAddress() {
  box.value = decodeURIComponent(location.hash.slice(1));
  search();
}
addEventListener("hashchange", fromAddress);
document.querySelector(".controls").hidden = false;
fromAddress();
