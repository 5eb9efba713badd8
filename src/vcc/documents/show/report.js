// Without JavaScript the links still jump; with it, all pieces of the chosen answer light up.
function light() {
  const id = location.hash.slice(1);
  document.querySelectorAll(".text mark").forEach(m => m.classList.toggle("on", m.dataset.of.split(" ").includes(id)));
}
addEventListener("hashchange", light); light();
